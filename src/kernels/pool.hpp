// The best candidates of a search. With internal linkage, as all that is compiled per instruction set.
#pragma once
#include <algorithm>

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
    uint8_t round = 0;    // in which it was found
    bool walked = false;  // its neighbors in the graph were read
};

// The R candidates of a stream with the highest keys, equal keys by id. Before a walk on the graph the keys are the plain scores,
// and the walk may keep more (`widen`) than are `wanted` in the end. The first `sorted` candidates are in order; new ones wait
// behind them.
struct Pool {
    const ListSegment* segments;
    size_t wanted, R, slack;
    bool bounded;  // keys are bounded
    Vector<Candidate> list;
    Vector<Candidate> late;  // scratch
    size_t sorted = 0;
    size_t best_walked = 0;  // the neighbors of so many of the best were read
    uint8_t round = 0;       // of reading
    float threshold = -INF;

    Pool(const ListSegment* segments, size_t wanted, size_t beam, size_t rows)
        : segments(segments), wanted(wanted), R(wanted), slack(slack_of(R)), bounded(!beam) {
        list.reserve(std::min(rows, slack_of(std::max(R, beam)) + std::max(R, beam)) + 1);
    }
    static size_t slack_of(size_t R) { return std::max<size_t>(R / 4, 16); }
    // Keeps `count` candidates for the end, if that is more.
    void deepen(size_t count) {
        if (count <= wanted) return;
        wanted = count;
        widen(count);
    }
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
    // Sorts the candidates, and keeps R of them.
    void cut() {
        const auto better = order(&Candidate::key);
        late.assign(list.begin() + static_cast<ptrdiff_t>(sorted), list.end());
        std::sort(late.begin(), late.end(), better);
        size_t a = sorted, b = late.size();
        while (b) {  // from the last on
            const bool old = a && better(late[b - 1], list[a - 1]);
            list[a + b - 1] = old ? list[a - 1] : late[b - 1];
            old ? --a : --b;
        }
        list.resize(std::min(list.size(), R));
        sorted = list.size();
        best_walked = std::min({best_walked, a, sorted});
        if (sorted == R) threshold = list[R - 1].key;
    }
    // bound: the least value that was compared with the threshold before the score was known.
    void offer(float bound, float score, uint32_t segment, uint32_t position) {
        const float key = bounded ? std::min(bound, score) : score;
        if (!(key >= threshold) || !(score > -INF)) return;
        if (round && !bounded && holds(segment, position)) return;  // a walk has found it before
        list.push_back({key, score, segment, position, round});
        if (list.size() == R + (threshold == -INF ? 0 : slack)) cut();
    }
    bool holds(uint32_t segment, uint32_t position) const {
        return std::any_of(list.begin(), list.end(),
                           [&](const Candidate& c) { return c.position == position && c.segment == segment; });
    }
    // How many of the best `count` were found in this round.
    size_t changes(size_t count) {
        cut();
        const auto end = list.begin() + static_cast<ptrdiff_t>(std::min(count, list.size()));
        return static_cast<size_t>(std::count_if(list.begin(), end, [this](const Candidate& c) { return c.round == round; }));
    }
    // Sorts by score, as far as the first `count`.
    void sort(size_t count) {
        const auto middle = list.begin() + static_cast<ptrdiff_t>(std::min(count, list.size()));
        std::partial_sort(list.begin(), middle, list.end(), order(&Candidate::score));
    }
};

}  // namespace
}  // namespace logt
