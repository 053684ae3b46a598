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

struct Candidate {
    float score;
    uint32_t segment, position;
};

// The R best candidates of a stream, equal scores by id.
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
    auto order() const {
        return [this](const Candidate& a, const Candidate& b) {
            return a.score != b.score ? a.score > b.score : id(a) < id(b);
        };
    }
    void cut() {
        if (list.size() <= R) return;
        std::nth_element(list.begin(), list.begin() + static_cast<ptrdiff_t>(R) - 1, list.end(), order());
        list.resize(R);
    }
    void offer(float score, uint32_t segment, uint32_t position) {
        if (!(score >= threshold) || score == -INF) return;
        list.push_back({score, segment, position});
        if (list.size() == R && threshold == -INF) {
            for (const Candidate& c : list) threshold = threshold == -INF ? c.score : std::min(threshold, c.score);
        } else if (list.size() >= R + slack) {
            cut();
            threshold = list[R - 1].score;
        }
    }
    void sort() {
        cut();
        std::sort(list.begin(), list.end(), order());
    }
};

}  // namespace
}  // namespace logt
