// A walk on the neighbor graph: the neighbors of the best candidates become candidates, until those of the best are all
// known. With internal linkage, as all that is compiled per instruction set.
#pragma once
#include <algorithm>
#include <cstdint>
#include <utility>

#include "lists.hpp"
#include "pool.hpp"
#include "scan.hpp"
#include "seen.hpp"

namespace logt {
namespace {

struct Walk {
    const Graph& graph;
    const ListSegment* segments;
    Vector<Scan>& scans;  // by codec
    Pool& pool;
    SeenBelow seen{graph.lists.rows};
    Vector<uint32_t> nodes = {};   // whose neighbors are read next
    Vector<uint32_t> others = {};  // their neighbors

    // Until the neighbors of the `beam` best candidates were read.
    void run(size_t beam) {
        for (const Candidate& c : pool.list)
            if (node_of(c) != Graph::NONE) seen.insert(node_of(c));
        if (graph.unlinked_count) read_unlinked();
        for (Scan& scan : scans) scan.start_walk();
        while (choose(beam)) {
            find_neighbors();
            for (uint32_t other : others)
                if (graph.holds(other)) need_units(graph.nodes[other]);
            for (Scan& scan : scans) scan.missing.measure();
            for (uint32_t other : others)
                if (graph.holds(other)) decode(graph.nodes[other]);
            for (Scan& scan : scans) scan.finish();
        }
    }

  private:
    void need_units(const GraphNode& node) {
        const uint32_t segment = graph.segment_of(node.position);
        const uint32_t p = static_cast<uint32_t>(node.position - graph.first[segment]);
        scans[segments[segment].codec].need_units(node, segments[segment], p);
    }
    void decode(const GraphNode& node) {
        const uint32_t segment = graph.segment_of(node.position);
        const uint32_t p = static_cast<uint32_t>(node.position - graph.first[segment]);
        scans[segments[segment].codec].decode_node(node, segment, p);
    }

    // Vectors that no neighbor leads to. Those in lists that were read may be candidates already.
    void read_unlinked() {
        Vector<uint64_t> known;
        for (const Candidate& c : pool.list)
            if (node_of(c) == Graph::NONE) known.push_back(uint64_t{c.segment} << 32 | c.position);
        std::sort(known.begin(), known.end());
        for (Scan& scan : scans) scan.code_reach = scan.usual_reach();
        for (uint32_t segment = 0; segment < graph.segment_count; ++segment) read_unlinked(segment, known);
        for (Scan& scan : scans) scan.finish();
    }

    // known: pairs of a segment and a position, in order
    void read_unlinked(uint32_t segment, const Vector<uint64_t>& known) {
        const SegmentNodes& part = graph.parts[segment];
        const ListSegment& s = segments[segment];
        const GraphNode* const end = part.unlinked + part.unlinked_count;
        for (const GraphNode* node = part.unlinked; node < end; ++node) scans[s.codec].need_units(*node, s, node->position);
        scans[s.codec].missing.measure();
        auto next = std::lower_bound(known.begin(), known.end(), uint64_t{segment} << 32);
        for (const GraphNode* node = part.unlinked; node < end; ++node) {
            const uint64_t at = uint64_t{segment} << 32 | node->position;
            while (next != known.end() && *next < at) ++next;
            if (next != known.end() && *next == at) continue;
            if (!s.visible || s.visible[s.row[node->position]]) scans[s.codec].decode_node(*node, segment, node->position);
        }
    }

    uint32_t node_of(const Candidate& c) const { return graph.node_of(c.segment, c.position); }

    // Takes some of the best candidates whose neighbors were not read; whether there are any.
    bool choose(size_t beam) {
        constexpr size_t TOGETHER = 4;
        pool.cut();
        nodes.clear();
        for (size_t& r = pool.best_walked; r < std::min(beam, pool.list.size()) && nodes.size() < TOGETHER; ++r) {
            Candidate& c = pool.list[r];
            if (std::exchange(c.walked, true) || node_of(c) == Graph::NONE) continue;
            nodes.push_back(node_of(c));
            graph.lists.fetch(nodes.back(), fetch_bytes);
        }
        return !nodes.empty();
    }

    // Without a branch on whether a neighbor is new, where those seen are bits: the processor could not guess it.
    void find_neighbors() {
        const size_t k = graph.lists.k;
        others.resize(nodes.size() * k);
        size_t count = 0;
        for (uint32_t node : nodes) {
            const size_t known = graph.lists.count(node);
            for (size_t j = 0; j < known; ++j) {
                const uint32_t other = graph.lists.known_neighbor(node, j);
                __builtin_prefetch(graph.nodes + other);
                others[count] = other;
                count += seen.insert(other);
            }
        }
        others.resize(count);
    }
};

}  // namespace
}  // namespace logt
