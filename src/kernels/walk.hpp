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

struct Found {
    uint32_t node, segment, position;
};

struct Walk {
    const Graph& graph;
    const ListSegment* segments;
    Vector<Scan>& scans;  // by codec
    Pool& pool;
    SeenBelow seen{graph.lists.rows};
    Vector<uint32_t> nodes = {};   // whose neighbors are read next
    Vector<uint32_t> others = {};  // their neighbors
    Vector<Found> found = {};

    // Until the neighbors of the `beam` best candidates were read.
    void run(size_t beam) {
        for (const Candidate& c : pool.list)
            if (node_of(c) != Graph::NONE) seen.insert(node_of(c));
        while (choose(beam)) {
            find_neighbors();
            for (const Found& f : found)
                scans[segments[f.segment].codec].decode_place(graph.place[f.node], f.segment, f.position);
            for (Scan& scan : scans) scan.finish();
        }
    }

  private:
    uint32_t node_of(const Candidate& c) const { return graph.node[graph.position(c.segment, c.position)]; }

    // Takes some of the best candidates whose neighbors were not read; whether there are any.
    bool choose(size_t beam) {
        constexpr size_t TOGETHER = 4;
        pool.cut();
        nodes.clear();
        for (size_t r = 0; r < std::min(beam, pool.list.size()) && nodes.size() < TOGETHER; ++r) {
            Candidate& c = pool.list[r];
            if (std::exchange(c.walked, true) || node_of(c) == Graph::NONE) continue;
            nodes.push_back(node_of(c));
            graph.lists.fetch(nodes.back(), fetch_bytes);
        }
        return !nodes.empty();
    }

    void find_neighbors() {
        others.clear();
        for (uint32_t node : nodes)
            for (size_t j = 0; j < graph.lists.k; ++j) {
                const uint32_t other = graph.lists.neighbor(node, j);
                if (other == Graph::NONE) break;  // lists have no gaps
                if (!seen.insert(other)) continue;
                __builtin_prefetch(graph.place + other);
                others.push_back(other);
            }
        found.clear();
        for (uint32_t other : others) {
            const uint32_t position = graph.place[other].position;
            if (position == Graph::NONE) continue;
            const uint32_t segment = graph.segment_of(position);
            const uint32_t p = static_cast<uint32_t>(position - graph.first[segment]);
            found.push_back({other, segment, p});
            const Scan& scan = scans[segments[segment].codec];
            if (!segments[segment].fits_place()) scan.fetch(segments[segment], p, p + 1);
            fetch_bytes(scan.head(segment, p), scan.codec.head_bytes);
        }
    }
};

}  // namespace
}  // namespace logt
