// The search of the default index. Compiled once per instruction set (LOGT_LISTS names the copy); everything but the
// table has internal linkage.
//
// For each query: measure the memory vectors (c), decode the sparse codes of the lists with the highest scores, and read
// the residual only of vectors that can still be among the best: first the signs, then all bits, then the refinement.
// "Can still": their estimate so far, plus a number of deviations of what was not read, reaches the worst candidate.
#include "lists.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "pool.hpp"
#include "query.hpp"
#include "readers.hpp"
#include "scan.hpp"
#include "units.hpp"
#include "walk.hpp"

namespace logt {
namespace {

// ---------------------------------------------------------------------------------------------------- search

void fetch_refinement(const Codec* codecs, const ListSegment& s, uint32_t position) {
    const size_t dim = codecs[s.codec].dim;
    if (s.refinement) fetch_bytes(s.refinement + s.row[position] * dim, dim);
}

// The best k scores of candidates whose refinement was read, and how much it has changed them.
class Refined {
  public:
    explicit Refined(size_t k) : k_(k) {}

    void add(float before, float score) {
        if (k_ == SIZE_MAX || !(score > -INF)) return;
        const double change = static_cast<double>(score) - before;
        sum_ += change, squares_ += change * change, ++count_;
        best_.push_back(score);
        std::push_heap(best_.begin(), best_.end(), std::greater<>());
        if (best_.size() > k_) std::pop_heap(best_.begin(), best_.end(), std::greater<>()), best_.pop_back();
        if (best_.size() < k_ || count_ < ENOUGH) return;
        const double mean = sum_ / static_cast<double>(count_), variance = squares_ / static_cast<double>(count_) - mean * mean;
        least_ = best_.front() - static_cast<float>(mean + DEVIATIONS * std::sqrt(std::max(0.0, variance)));
    }
    // Whether a candidate of this score can be among the k best.
    bool reaches(float score) const { return !(score < least_); }

  private:
    static constexpr size_t ENOUGH = 12;
    static constexpr double DEVIATIONS = 4;

    size_t k_, count_ = 0;
    double sum_ = 0, squares_ = 0;
    Vector<float> best_;  // a heap, the least one first
    float least_ = -INF;
};

// One query in all segments.
struct Search {
    const Codec* codecs;
    const ListSegment* segments;
    Pool pool;
    Vector<Scan> scans = {};        // by codec
    std::optional<Walk> walk = {};  // once it has started
    int64_t found = 0;
    size_t usual_depth = pool.wanted;
    bool done = false;

    // Whether there is another round of reading lists. readers: by codec, of each query. share: that of all vectors which are searched
    // here; other shards have other results.
    bool go_on(Vector<Vector<ListReader>>& readers, size_t query, const ScanLimits& limits, double share) {
        if (!limits.results || limits.everything) return false;
        const double results = share * static_cast<double>(std::min(limits.results, pool.wanted));
        const size_t count = std::max<size_t>(1, static_cast<size_t>(std::ceil(results)));
        const bool changed = static_cast<double>(pool.changes(count)) > CHANGES * results;
        const float worst = pool.list.size() < count ? -INF : pool.list[count - 1].key;
        bool more = false;
        for (Vector<ListReader>& of_codec : readers) {
            if (!of_codec[query].go_on(worst, changed)) continue;
            more = true;
            deepen(of_codec[query].depth());
        }
        return more;
    }
    void deepen(double times) { pool.deepen(static_cast<size_t>(times * static_cast<double>(usual_depth))); }
    void walk_on(const Graph& graph, size_t beam) {
        if (!walk) {
            pool.widen(beam);
            walk.emplace(Walk{graph, segments, scans, pool});
        }
        walk->run(beam);
    }

    // Reads the refinement of the candidates, and sorts the k best of them. all: of all of them; otherwise not of those that are so far
    // behind that a refinement like those that were read would not put them among the k best.
    void refine(size_t k, bool all) {
        pool.R = pool.wanted;
        pool.cut();
        constexpr size_t AHEAD = 2;
        Refined refined(all ? SIZE_MAX : k);
        for (size_t r = 0; r < pool.list.size() + AHEAD; ++r) {
            if (r < pool.list.size() && refined.reaches(pool.list[r].score))
                fetch_refinement(codecs, segments[pool.list[r].segment], pool.list[r].position);
            if (r < AHEAD) continue;
            Candidate& c = pool.list[r - AHEAD];
            const ListSegment& segment = segments[c.segment];
            Scan& scan = scans[segment.codec];
            const bool read = refined.reaches(c.score);
            const float before = c.score;
            c.score = read ? before + scan.refined_part(c.segment, c.position, scan.list_of(segment, c.position)) : -INF;
            if (std::isnan(c.score)) c.score = -INF;
            if (read) refined.add(before, c.score);
        }
        pool.sort(k);
    }

    void write(const Results& results, size_t query, size_t k) const {
        for (size_t r = 0; r < k; ++r) {
            const bool any = r < pool.list.size();
            const size_t at = query * k + r;
            results.scores[at] = any ? pool.list[r].score : -INF;
            results.ids[at] = any ? pool.id(pool.list[r]) : -1;
            if (results.keys) results.keys[at] = any ? pool.list[r].key : -INF;
        }
    }
};

// The units that a query is compared with before it reads lists; 0: all of them.
size_t near_units(const Codec& codec, const ScanLimits& limits) {
    return ListOrder::near_units(codec, usual_lists(codec, limits, 1, 1));
}

// Whether comparing several queries with all units at once is quicker than each with those that it needs.
bool measured_together([[maybe_unused]] size_t queries) {
#if defined(LOGT_AMX)
    return queries >= 8;
#else
    return false;
#endif
}

// How many queries are searched at a time. They share products with all memory vectors, and lists that several of them read.
// Where each is compared with the units of its best groups only, they share little: one at a time keeps what it reads in the cache.
size_t block_size([[maybe_unused]] const Codec* codecs, [[maybe_unused]] size_t count, [[maybe_unused]] const ScanLimits& limits, size_t beam) {
    constexpr size_t MANY = 64;
#if defined(LOGT_AMX)
    constexpr size_t FEW = 16;  // with a graph: as many as their products with the memory vectors are worth
#else
    constexpr size_t FEW = 4;
    const auto near = [&](const Codec& codec) { return near_units(codec, limits) > 0; };
    if (!limits.everything && std::all_of(codecs, codecs + count, near)) return 1;
#endif
    return beam ? FEW : MANY;
}

// Round by round, until no query goes on. readers: by codec, of each query.
void read(Vector<Vector<ListReader>>& readers, Vector<Search>& searches, const ScanLimits& limits, double share, const Graph* graph,
          size_t beam) {
    Vector<std::unique_ptr<ReadersTogether>> together;
    if (searches.size() > 1 && !beam)
        for (Vector<ListReader>& of_codec : readers) together.push_back(std::make_unique<ReadersTogether>(of_codec));
    bool first = true;
    for (bool more = true; more; first = false) {
        for (size_t m = 0; m < readers.size(); ++m) {
            for (size_t q = 0; q < searches.size(); ++q) {
                if (first) readers[m][q].start(), searches[q].deepen(readers[m][q].depth());
                if (together.empty() && !searches[q].done) readers[m][q].read_round();
            }
            if (!together.empty()) together[m]->read_round();
        }
        more = false;
        for (size_t q = 0; q < searches.size(); ++q) {
            Search& mine = searches[q];
            if (mine.done) continue;
            if (beam) mine.walk_on(*graph, beam);
            mine.done = !mine.go_on(readers, q, limits, share);
            ++mine.pool.round;
            more |= !mine.done;
        }
    }
}

void search(const Codec* codecs, size_t codec_count, const ListSegment* segments, size_t segment_count, const float* Q,
            size_t queries, float scale, bool l2, const ScanLimits& limits, size_t k, const Totals* totals, const Graph* graph,
            Results results, Counts* counts) {
    constexpr size_t NUMBERS = 1 << 21;  // that are kept for all queries of a block
    const size_t beam = graph && !limits.everything ? limits.beam : 0, wanted = std::max(k, limits.candidates);
    size_t each = wanted + 1;  // a candidate, or a unit of the largest codec
    for (size_t m = 0; m < codec_count; ++m) each = std::max(each, codecs[m].units);
    const size_t together = std::clamp<size_t>(NUMBERS / each, 1, block_size(codecs, codec_count, limits, beam));
    const size_t dim = codec_count ? codecs[0].dim : 0;
    size_t rows = 0, all_rows = 0;
    for (size_t s = 0; s < segment_count; ++s) rows += segments[s].rows;
    for (size_t m = 0; totals && m < codec_count; ++m) all_rows += totals[m].all_rows;
    const double share = std::min(1.0, static_cast<double>(rows) / static_cast<double>(std::max(rows, all_rows)));
    for (size_t first = 0; first < queries; first += together) {
        const size_t n = std::min(together, queries - first);
        Vector<Query> prepared;  // codec by codec
        prepared.reserve(codec_count * n);
        Vector<Search> searches;
        searches.reserve(n);
        for (size_t q = 0; q < n; ++q) {
            searches.push_back({codecs, segments, Pool(segments, wanted, beam, rows)});
            searches.back().scans.reserve(codec_count);
        }
        Vector<Vector<ListReader>> readers(codec_count);  // of each query
        for (size_t m = 0; m < codec_count; ++m) {
            for (size_t q = 0; q < n; ++q) prepared.emplace_back(codecs[m], Q + (first + q) * dim, scale, l2);
            const bool complete = limits.everything || measured_together(n) || !near_units(codecs[m], limits);
            if (complete) measure(codecs[m], &prepared[m * n], n);
            readers[m].reserve(n);
            for (size_t q = 0; q < n; ++q) {
                Search& mine = searches[q];
                mine.scans.emplace_back(codecs[m], segments, prepared[m * n + q], limits, mine.pool, counts[first + q], complete);
                readers[m].emplace_back(mine.scans[m], m, segment_count, totals ? totals + m : nullptr, mine.found);
            }
        }
        read(readers, searches, limits, share, graph, beam);
        for (size_t q = 0; q < n; ++q) {
            searches[q].refine(k, limits.everything || !limits.results);
            searches[q].write(results, first + q, k);
        }
    }
}

void scores(const Codec* codecs, const ListSegment& segment, const float* q, float scale, bool l2, size_t begin,
            size_t end, float* out) {
    const Codec& codec = codecs[segment.codec];
    Query query(codec, q, scale, l2);
    measure(codec, &query, 1);
    const ScanLimits all = {.lists = 1, .everything = true};
    Pool pool(&segment, 1, 0, 1);
    Counts counts;
    Scan scan(codec, &segment, query, all, pool, counts, true);
    size_t list = 0;
    for (size_t p = begin; p < end; ++p) {
        const uint32_t at = static_cast<uint32_t>(p);
        const float first = scan.first_of(segment, p, list);
        const bool hidden = segment.visible && !segment.visible[segment.row[p]];
        const float code = scan.estimate_one(segment, p, first);
        const float estimate = scan.with_all_bits(segment.factor[p], code, scan.sum_of_all(0, at));
        out[p - begin] = hidden ? -INF : estimate + scan.refined_part(0, at, list);
    }
}

}  // namespace

const ListTable LOGT_LISTS = {rotate, search, scores};

}  // namespace logt
