// What walks on the neighbor graph read of vectors. Searchers of successive snapshots share it: a change of an index computes
// only what it has changed.
#pragma once
#include <vector>

#include "segment_arrays.hpp"

namespace {

// list: that of position p
inline logt::GraphNode graph_node(const logt::ListSegment& s, size_t p, size_t list, size_t position) {
    logt::GraphNode node = {static_cast<uint32_t>(position), {}, {}, s.scale[p], s.factor[p], s.bias ? s.bias[p] : 0};
    for (size_t e = 0; s.fits_node() && e < s.entries; ++e) {
        const bool listed = s.starts && !e;
        node.unit[e] = static_cast<uint16_t>(listed ? list : s.unit_of(s.starts ? e - 1 : e, p));
        node.weight[e] = s.weight[e * s.rows + p];
    }
    return node;
}

// Calls use(p, list) for increasing positions, as next() returns them until it returns the number of rows.
template <typename Next, typename Use>
inline void for_each_position(const logt::ListSegment& s, Next&& next, Use&& use) {
    size_t list = 0;
    for (size_t p = next(); p < s.rows; p = next()) {
        while (s.starts && s.starts[list + 1] <= static_cast<int64_t>(p)) ++list;
        use(p, list);
    }
}

// The vectors of one segment: which nodes of the graph they are, by position, and those in lists that are none.
class SegmentNodes {
  public:
    // node: by position, or empty: none is a node. unlinked: positions, increasing.
    SegmentNodes(const SegmentArrays& arrays, In<uint32_t, 1> node, In<uint32_t, 1> unlinked) : node_(node) {
        const logt::ListSegment s = arrays.segment();
        size_t i = 0;
        unlinked_.reserve(unlinked.shape(0));
        for_each_position(
            s, [&] { return i < unlinked.shape(0) ? unlinked.data()[i++] : s.rows; },
            [&](size_t p, size_t list) { unlinked_.push_back(graph_node(s, p, list, p)); });
    }
    logt::SegmentNodes view() const {
        return {node_.shape(0) ? node_.data() : nullptr, unlinked_.data(), unlinked_.size()};
    }
    const In<uint32_t, 1>& node() const { return node_; }
    size_t nbytes() const { return unlinked_.size() * sizeof(logt::GraphNode) + node_.nbytes(); }

  private:
    In<uint32_t, 1> node_;
    std::vector<logt::GraphNode> unlinked_;
};

// All nodes of a graph. Once a searcher has it, it is copied before it is changed.
class GraphNodes {
  public:
    explicit GraphNodes(size_t count) : nodes_(count, {logt::Graph::NONE, {}, {}, 0, 0, 0}) {}

    // The nodes of a segment, whose first position is `first`.
    void place(const SegmentArrays& arrays, const SegmentNodes& part, size_t first) {
        const logt::ListSegment s = arrays.segment();
        const uint32_t* node = part.view().node;
        const nb::gil_scoped_release others_run;  // this takes a while
        size_t i = 0;
        for_each_position(
            s, [&] { return node ? i++ : s.rows; },
            [&](size_t p, size_t list) {
                if (node[p] != logt::Graph::NONE) nodes_[node[p]] = graph_node(s, p, list, first + p);
            });
    }
    // The nodes of a segment that is no longer there.
    void clear(const SegmentNodes& part) {
        for (size_t p = 0; p < part.node().shape(0); ++p)
            if (part.node().data()[p] != logt::Graph::NONE) nodes_[part.node().data()[p]].position = logt::Graph::NONE;
    }
    const logt::GraphNode* data() const { return nodes_.data(); }
    size_t nbytes() const { return nodes_.size() * sizeof(logt::GraphNode); }

  private:
    std::vector<logt::GraphNode> nodes_;
};

}  // namespace
