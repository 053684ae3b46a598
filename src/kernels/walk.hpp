// A walk on the neighbor graph: the neighbors of the best candidates become candidates, until those of the best are all
// known. With internal linkage, as all that is compiled per instruction set.
#pragma once
#include <algorithm>
#include <cstdint>

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
    Seen seen = {};
    Vector<size_t> next = {};      // places in the pool
    Vector<uint32_t> nodes = {};   // of them
    Vector<uint32_t> others = {};  // their neighbors
    Vector<Found> found = {};

    // Until the neighbors of the `beam` best candidates were read.
    void run(size_t beam) {
        for (const Candidate& c : pool.list) seen.insert(graph.position(c.segment, c.position));
        while (choose(beam)) {
            find_neighbors();
            for (const Found& f : found)
                scans[segments[f.segment].codec].decode_place(graph.place[f.node], f.segment, f.position);
            for (Scan& scan : scans) scan.finish();
        }
    }

  private:
    // Takes some of the best candidates whose neighbors were not read; whether there are any.
    bool choose(size_t beam) {
        constexpr size_t TOGETHER = 4;
        pool.cut();
        const float least = pool.score_of_place(beam);
        next.clear();
        for (size_t r = 0; r < pool.list.size(); ++r) {
            const Candidate& c = pool.list[r];
            if (c.walked || c.score < least) continue;
            const auto better = [this, &c](size_t other) { return pool.list[other].score >= c.score; };
            next.insert(std::partition_point(next.begin(), next.end(), better), r);
            if (next.size() > TOGETHER) next.pop_back();
        }
        nodes.clear();
        for (size_t r : next) {
            Candidate& c = pool.list[r];
            c.walked = true;
            const uint32_t node = graph.node[graph.position(c.segment, c.position)];
            if (node == Graph::NONE) continue;
            graph.lists.fetch(node, fetch_bytes);
            nodes.push_back(node);
        }
        return !next.empty();
    }

    void find_neighbors() {
        others.clear();
        for (uint32_t node : nodes)
            for (size_t j = 0; j < graph.lists.k; ++j) {
                const uint32_t other = graph.lists.neighbor(node, j);
                if (other == Graph::NONE) break;  // lists have no gaps
                fetch_bytes(graph.place + other, sizeof(Place));
                others.push_back(other);
            }
        found.clear();
        for (uint32_t other : others) {
            const uint32_t position = graph.place[other].position;
            if (position == Graph::NONE || !seen.insert(position)) continue;
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
