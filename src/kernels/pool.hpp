// The best candidates of a search. With internal linkage, as all that is compiled per instruction set.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <utility>

#include "best.hpp"
#include "lists.hpp"

namespace logt {
namespace {

// key: the score, or, if keys are bounded, the least bound by which it might have been left out while it was read, if that is
// lower. The R best by such a key do not depend on the order in which vectors are read, nor on other segments: shards can be
// merged.
struct Candidate {
    float key, score;
    uint32_t segment, position;
    bool walked = false;  // its neighbors in the graph were read
};

// The R candidates of a stream with the highest keys, equal keys by id. Before a walk on the graph the keys are the plain scores,
// and the walk may keep more (`widen`) than are `wanted` in the end.
struct Pool {
    const ListSegment* segments;
    size_t wanted, R, slack;
    bool bounded;  // keys are bounded
    Vector<Candidate> list;
    Vector<float> scores;  // scratch
    float threshold = -INF;

    Pool(const ListSegment* segments, size_t wanted, size_t beam, size_t rows)
        : segments(segments), wanted(wanted), R(wanted), slack(slack_of(R)), bounded(!beam) {
        list.reserve(std::min(rows, slack_of(std::max(R, beam)) + std::max(R, beam)) + 1);
    }
    static size_t slack_of(size_t R) { return std::max<size_t>(R / 4, 16); }
    // Keeps `count` candidates from now on, if that is more.
    void widen(size_t count) {
        cut();
        R = std::max(R, count);
        slack = slack_of(R);
        if (list.size() < R) threshold = -INF;
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
        threshold = list[R - 1].key;
    }
    // bound: the least value that was compared with the threshold before the score was known.
    void offer(float bound, float score, uint32_t segment, uint32_t position) {
        const float key = bounded ? std::min(bound, score) : score;
        if (!(key >= threshold) || !(score > -INF)) return;
        list.push_back({key, score, segment, position});
        if (list.size() == R && threshold == -INF) {
            for (const Candidate& c : list) threshold = threshold == -INF ? c.key : std::min(threshold, c.key);
        } else if (list.size() >= R + slack) {
            cut();
        }
    }
    // A score that the n best by score reach, and few others: that of the n-th, or -inf if there are no more than n.
    float score_of_place(size_t n) {
        if (list.size() <= n) return -INF;
        scores.clear();
        for (const Candidate& c : list) scores.push_back(c.score);
        const auto place = scores.begin() + static_cast<ptrdiff_t>(n) - 1;
        std::nth_element(scores.begin(), place, scores.end(), std::greater<float>());
        return *place;
    }
    // Sorts by score, as far as the first `count`.
    void sort(size_t count) {
        const auto middle = list.begin() + static_cast<ptrdiff_t>(std::min(count, list.size()));
        std::partial_sort(list.begin(), middle, list.end(), order(&Candidate::score));
    }
};

}  // namespace
}  // namespace logt
