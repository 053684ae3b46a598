// Products of queries with memory vectors, and the order of the units by them. With internal linkage, as all that is compiled per
// instruction set.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>

#include "best.hpp"
#include "bits.hpp"
#include "lanes.hpp"
#include "lists.hpp"
#include "query.hpp"
#include "tiles.hpp"

namespace logt {
namespace {

// c = q·y of M memory vectors for N queries: each memory vector is read once.
template <size_t M, size_t N>
[[gnu::always_inline]] inline void measure_some(const Codec& codec, Query* queries, const size_t (&unit)[M]) {
    const uint8_t* code[M];
    const int8_t* weights[N];
    int32_t dots[M][N];
    for (size_t m = 0; m < M; ++m) code[m] = codec.book + unit[m] * codec.book_bytes;
    for (size_t n = 0; n < N; ++n) weights[n] = queries[n].book.values.data;
    nibble_dots<M, N>(code, weights, codec.book_bytes, dots);
    for (size_t m = 0; m < M; ++m)
        for (size_t n = 0; n < N; ++n) queries[n].c[unit[m]] = queries[n].product(codec.book_scale[unit[m]], dots[m][n]);
}

// The memory vectors from..to-1, in M parts at a time, each from its first to its last: the processor fetches such streams by
// itself.
template <size_t N>
void measure_range(const Codec& codec, Query* queries, size_t from, size_t to) {
    constexpr size_t M = N > 1 ? 2 : 4;
    const size_t part = (to - from) / M;
    size_t unit[M];
    for (size_t j = from; j < from + part; ++j) {
        for (size_t m = 0; m < M; ++m) unit[m] = j + m * part;
        measure_some<M, N>(codec, queries, unit);
    }
    for (size_t j = from + part * M; j < to; ++j) measure_some<1, N>(codec, queries, {j});
}

#if defined(LOGT_AMX)
void measure_many(const Codec& codec, Query* queries, size_t count) {
    using Book = Products<2>;
    Book book(codec.book_bytes, count);
    for (size_t q = 0; q < count; ++q) book.set(q, queries[q].book);
    for (size_t first = 0; first < codec.units; first += Book::BLOCK) {
        const size_t units = std::min(Book::BLOCK, codec.units - first);
        const int32_t* dots = book.multiply(codec.book + first * codec.book_bytes, units, (1u << book.tiles()) - 1);
        for (size_t q = 0; q < count; ++q)
            for (size_t j = first; j < first + units; ++j)
                queries[q].c[j] = queries[q].product(codec.book_scale[j], dots[(j - first) * book.stride() + q]);
    }
}
#endif

// All units.
void measure(const Codec& codec, Query* queries, size_t count) {
#if defined(LOGT_AMX)
    if (count >= 8) return measure_many(codec, queries, count);
#endif
    for (; count >= 4; count -= 4, queries += 4) measure_range<4>(codec, queries, 0, codec.units);
    if (count == 3) measure_range<3>(codec, queries, 0, codec.units);
    else if (count == 2) measure_range<2>(codec, queries, 0, codec.units);
    else if (count == 1) measure_range<1>(codec, queries, 0, codec.units);
}

// The products that are computed when they are needed first: those with the units that the codes of some vectors name.
class Missing {
  public:
    Missing(const Codec& codec, Query& query) : codec_(codec), query_(query) {}

    void add(size_t unit) {
        if (!query_.measured.insert(unit)) return;
        units_.push_back(static_cast<uint32_t>(unit));
        fetch_bytes(codec_.book + unit * codec_.book_bytes, codec_.book_bytes);
    }
    void measure() {
        constexpr size_t M = 4;
        const uint32_t* unit = units_.data();
        size_t n = 0;
        for (; n + M <= units_.size(); n += M, unit += M) measure_some<M, 1>(codec_, &query_, {unit[0], unit[1], unit[2], unit[3]});
        for (; n < units_.size(); ++n, ++unit) measure_some<1, 1>(codec_, &query_, {*unit});
        units_.clear();
    }

  private:
    const Codec& codec_;
    Query& query_;
    Vector<uint32_t> units_;
};

// The units of a codec by decreasing estimate of the best score in their lists. Only some are found and sorted at first, and
// more as they are used: those of the best groups or, where these would be most units, those far above the mean.
class ListOrder {
  public:
    // wanted: lists that will be read, about. complete: whether all units were measured
    ListOrder(const Codec& codec, Query& query, size_t wanted, bool complete)
        : codec_(codec), query_(query), complete_(complete), scores_(near_units(codec, wanted) ? 0 : codec.units) {
        if (const size_t near = near_units(codec, wanted)) find_near(near, wanted + 1);
        else prepare_all();
    }
    size_t unit(size_t n) {
        while (n >= sorted_) sorted_ < lists_.size() ? sort_from(sorted_, more()) : find_more();
        return Best::row(lists_[n]);
    }
    // The units of the best groups among which the best `wanted` are searched for; 0: all of them are compared. Units that codes
    // name are compared as well. One that is read alone takes about twice as long as one in a row of all, and some time to find.
    static size_t near_units(const Codec& codec, size_t wanted) {
        constexpr size_t EACH = 16, NAMED = 200, BYTES = 256;
        if (!codec.groups) return 0;
        const size_t near = codec.compared + EACH * wanted;
        const size_t alone = 2 * (codec.groups + near + NAMED) * (codec.book_bytes + BYTES);
        return alone < codec.units * codec.book_bytes ? near : 0;
    }

    // The score of the n-th list.
    float score(size_t n) { return score_of(unit(n)); }
    // Sorts all lists from `first` on: those of the best groups need not be the best for a query that is unlike the collection.
    void use_all(size_t first) {
        if (!near_) return;
        if (lists_.size() < codec_.units) find_rest();
        near_ = false;
        sort_from(first, more());
    }

  private:
    static constexpr auto falling = [](uint64_t a, uint64_t b) { return a > b; };

    float score_of(size_t j) const {
        const float score = codec_.list_weight[j] * query_.c[j] + codec_.list_bias[j];
        return std::isnan(score) ? -INF : score;  // a NaN has no place in an order
    }

    // Takes the units of the best groups: at least `near` of them, and sorts the best `wanted`.
    void find_near(size_t near, size_t wanted) {
        const size_t units = codec_.units, groups = codec_.groups;
        measure_range<1>(codec_, &query_, units, units + groups);
        Vector<uint64_t> order(groups);
        for (size_t g = 0; g < groups; ++g) order[g] = Best::pair(score_of(units + g), g);
        for (size_t n = 0; n < groups && lists_.size() < near; ++n) {
            const auto next = order.begin() + static_cast<ptrdiff_t>(n);
            std::iter_swap(next, std::max_element(next, order.end()));  // only a few are taken
            const size_t g = Best::row(*next);
            const size_t from = static_cast<size_t>(codec_.group_starts[g]), to = static_cast<size_t>(codec_.group_starts[g + 1]);
            if (!complete_) measure_range<1>(codec_, &query_, from, to);
            for (size_t j = from; j < to; ++j) query_.measured.insert(j);
            for (size_t j = from; j < to; ++j) lists_.push_back(Best::pair(score_of(j), j));
        }
        near_ = true;
        sort_from(0, wanted);
    }
    // How many lists are sorted next: about twice as many in all.
    size_t more() const { return std::max<size_t>(16, sorted_); }
    // Sorts the lists from `first` on, and first `count` of them only: more may not be used.
    void sort_from(size_t first, size_t count) {
        const auto begin = lists_.begin() + static_cast<ptrdiff_t>(first);
        sorted_ = std::min(first + count, lists_.size());
        const auto middle = lists_.begin() + static_cast<ptrdiff_t>(sorted_);
        if (middle != lists_.end()) std::nth_element(begin, middle, lists_.end(), falling);
        std::sort(begin, middle, falling);
    }

    // All other units, after those of the best groups.
    void find_rest() {
        Bits known(codec_.units);
        for (uint64_t pair : lists_) known.insert(Best::row(pair));
        measure_rest();
        const size_t from = lists_.size();
        for (size_t j = 0; j < codec_.units; ++j)
            if (known.insert(j)) lists_.push_back(Best::pair(score_of(j), j));
        sort_from(from, more());
    }

    void measure_rest() {
        if (complete_) return;
        measure(codec_, &query_, 1);
        for (size_t j = 0; j < codec_.units; ++j) query_.measured.insert(j);
    }

    void prepare_all() {
        measure_rest();
        const size_t units = codec_.units;
        const float first = units ? score_of(0) : 0;
        float sums[SUMS] = {}, squares[SUMS] = {};
        for_each_of_parts(units, [&](size_t j, size_t s) {
            scores_[j] = score_of(j);
            const float more = scores_[j] - first;
            sums[s] += more;
            squares[s] += more * more;
        });
        const float count = static_cast<float>(units), mean = std::accumulate(sums, sums + SUMS, 0.0f) / count;
        mean_ = first + mean;
        deviation_ = std::sqrt(std::accumulate(squares, squares + SUMS, 0.0f) / count - mean * mean);
    }
    void find_more() {
        if (near_) return find_rest();
        const size_t from = lists_.size(), units = codec_.units;
        const float upper = std::exchange(least_, mean_ + level_ * deviation_);
        if (!(least_ < upper) || level_ < -2) least_ = -INF;  // all of them, also if there is no mean or no deviation
        level_ -= 0.75f;
        const auto add = [this](size_t j) { lists_.push_back(Best::pair(scores_[j], j)); };
        size_t j = 0;
        for (; j + LANES <= units; j += LANES) {
            uint32_t found = not_below(&scores_[j], least_);
            if (from) found &= ~not_below(&scores_[j], upper);
            for (; found; found &= found - 1) add(j + static_cast<size_t>(__builtin_ctz(found)));
        }
        for (; j < units; ++j)
            if (scores_[j] >= least_ && !(from && scores_[j] >= upper)) add(j);
        sort_from(from, more());
    }

    const Codec& codec_;
    Query& query_;
    bool complete_;
    bool near_ = false;  // the units of the best groups are first
    Buffer<float> scores_;  // of all units, unless `near_`
    float mean_ = 0, deviation_ = 0;
    float level_ = 2.5f, least_ = INF;  // deviations above the mean, and the least score that was found so far
    Vector<uint64_t> lists_;            // pairs of a score and a unit (best.hpp)
    size_t sorted_ = 0;                 // of these, which are in order
};

}  // namespace
}  // namespace logt
