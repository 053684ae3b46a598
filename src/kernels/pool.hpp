// The best candidates of a search. With internal linkage, as all that is compiled per instruction set.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "best.hpp"
#include "lists.hpp"

namespace logt {
namespace {

// key: the score, or the least bound by which it might have been left out while it was read, if that is lower. The R
// best by key do not depend on the order in which vectors are read, nor on other segments: shards can be merged.
struct Candidate {
    float key, score;
    uint32_t segment, position;
};

// The R candidates of a stream with the highest keys, equal keys by id.
struct Pool {
    const ListSegment* segments;
    size_t R, slack;
    std::vector<Candidate> list;
    float threshold = -INF;

    Pool(const ListSegment* segments, size_t R, size_t rows)
        : segments(segments), R(R), slack(std::max<size_t>(R / 4, 16)) {
        list.reserve(std::min(rows, R + slack) + 1);
    }
    int64_t id(const Candidate& c) const { return segments[c.segment].ids[segments[c.segment].row[c.position]]; }
    auto order(float Candidate::* by) const {
        return [this, by](const Candidate& a, const Candidate& b) {
            return a.*by != b.*by ? a.*by > b.*by : id(a) < id(b);
        };
    }
    void cut() {
        if (list.size() <= R) return;
        std::nth_element(list.begin(), list.begin() + static_cast<ptrdiff_t>(R) - 1, list.end(), order(&Candidate::key));
        list.resize(R);
    }
    // bound: the least value that was compared with the threshold before the score was known.
    void offer(float bound, float score, uint32_t segment, uint32_t position) {
        const float key = std::min(bound, score);
        if (!(key >= threshold) || !(score > -INF)) return;
        list.push_back({key, score, segment, position});
        if (list.size() == R && threshold == -INF) {
            for (const Candidate& c : list) threshold = threshold == -INF ? c.key : std::min(threshold, c.key);
        } else if (list.size() >= R + slack) {
            cut();
            threshold = list[R - 1].key;
        }
    }
    // Sorts by score.
    void sort() { std::sort(list.begin(), list.end(), order(&Candidate::score)); }
};

}  // namespace
}  // namespace logt
