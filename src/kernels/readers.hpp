// Reading lists: which ones a query reads, and how those of several queries are read together. With internal linkage, as all that
// is compiled per instruction set.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>

#include "lists.hpp"
#include "pool.hpp"
#include "query.hpp"
#include "scan.hpp"
#include "tiles.hpp"
#include "units.hpp"

namespace logt {
namespace {

// Most of the nearest vectors are in the first lists: these are pruned less than average, the last ones more. Depends on
// the rank of a list only, so that it is the same in all shards.
inline float reach_of_list(size_t rank, size_t nprobe) {
    constexpr float FIRST = 1.6f, LAST = 0.85f;
    const float place = std::min(1.0f, static_cast<float>(rank) / static_cast<float>(nprobe));
    return FIRST - (FIRST - LAST) * std::sqrt(place);
}

// Which lists a query reads. In the first round, those that are near enough to its best one. In further rounds, those that are near
// enough to its worst result so far: few if there are near results, and many if there are none. With the graph, they are fewer once
// the worst result is as near as those of queries like the collection (Codec::near): a walk finds what is near to these. Nearness is
// a number of deviations of the query (Codec::margins). A round at most doubles the lists. Beyond MOST times as many as a query like
// the collection reads, there is another round only while more than CHANGES of the results change. A query that reads many lists also
// keeps up to DEPTH times as many candidates, and further rounds prune less.
constexpr double MOST = 4, CHANGES = 0.02, DEPTH = 4;
constexpr float FURTHER = 1.6f;  // times the reach of codes

// How far one query reads the lists of a codec. lists: of a query like the collection, or of each if there are no margins. margin,
// further: how far below the best list others are read, in the first round and in further ones; below: the same below the worst
// result, and less_below for queries like the collection, with the graph. least, enough: further lists are read until so many vectors
// are decoded, and found.
struct Extent {
    size_t lists;
    float margin, further, below, less_below;
    int64_t least, enough;
};
// rows, visible: vectors in lists. others: vectors that were found before.
Extent extent_of(const Codec& codec, const ScanLimits& limits, float deviation, size_t R, size_t rows, size_t visible, size_t others) {
    const double wider = static_cast<double>(rows) / static_cast<double>(std::max<size_t>(visible, 1));  // a filter hides some
    const double units = static_cast<double>(codec.units);
    const double wanted = limits.nprobe ? static_cast<double>(limits.nprobe) : std::pow(units, limits.lists);
    const double lists = limits.everything ? units : std::clamp(std::ceil(wanted * wider), 1.0, units);
    Extent extent = {static_cast<size_t>(lists), -INF, -INF, -INF, -INF, static_cast<int64_t>(static_cast<double>(limits.least) * wider),
                     static_cast<int64_t>(std::min(R, others + visible))};
    if (!codec.margins || !limits.results || limits.everything) return extent;
    const auto known = [&](const float* margins, double exponent) {
        const double place = std::clamp(exponent, 0.0, 1.0) * (MARGINS - 1);
        const size_t at = std::min(static_cast<size_t>(place), MARGINS - 2);
        return deviation * (margins[at] + static_cast<float>(place - static_cast<double>(at)) * (margins[at + 1] - margins[at]));
    };
    extent.margin = known(codec.margins, limits.lists), extent.further = known(codec.margins, limits.further);
    extent.below = known(codec.margins + MARGINS, limits.further), extent.less_below = known(codec.margins + MARGINS, limits.lists);
    return extent;
}

// About how many lists queries read that are like the collection, further rounds included.
size_t usual_lists(const Codec& codec, const ScanLimits& limits, size_t rows, size_t visible) {
    return std::min(codec.units, 2 * extent_of(codec, limits, 0, 0, rows, visible, 0).lists);
}

// One query in the segments of one codec. totals: of this codec, or null if there are no other shards. found: visible vectors
// of the lists that were read so far, in all shards.
struct ListReader {
    Scan& scan;
    const size_t number, segment_count;
    const Totals* totals;
    int64_t& found;
    std::optional<ListOrder> order;  // if there are lists
    size_t rows = 0, visible = 0;    // vectors in these, of all shards
    Extent extent = {0, 0, 0, 0, 0, 0, 0};
    size_t next = 0, until = 0, target = 0;  // lists that were read, that are in this round, and that are near enough so far
    int64_t decoded = 0, before = 0;
    float code_reach, least_reach = 0;

    // Reads what is not in lists: small segments, and the few rows that a filter passes.
    ListReader(Scan& scan, size_t number, size_t segment_count, const Totals* totals, int64_t& found)
        : scan(scan), number(number), segment_count(segment_count), totals(totals), found(found),
          code_reach(scan.code_reach) {
        for (size_t s = 0; s < segment_count; ++s) {
            const ListSegment& segment = scan.segments[s];
            if (segment.codec != number || !segment.count) continue;
            if (!segment.starts) scan.decode(static_cast<uint32_t>(s), 0, segment.rows, 0);
            else rows += segment.rows, visible += segment.count;
        }
        scan.finish();
        if (totals) rows = totals->all_rows, visible = totals->all_visible, found += totals->scanned;
        if (rows) order.emplace(scan.codec, scan.query, usual_lists(scan.codec, scan.limits, rows, visible), scan.complete);
    }

    // Before the first round.
    void start() {
        if (!order) return;
        const size_t others = totals ? static_cast<size_t>(found) : scan.pool.list.size();
        extent = extent_of(scan.codec, scan.limits, scan.query.deviation, scan.pool.wanted, rows, visible, others);
        before = scan.counts.decoded;
        until = adapts() ? lists_above(order->score(0) - extent.margin, scan.codec.units) : extent.lists;
        if (adapts()) target = lists_above(order->score(0) - extent.further, scan.codec.units);
        least_reach = FURTHER * static_cast<float>((depth() - 1) / (DEPTH - 1));
    }
    // Before another round; whether there is one. worst: the score of the worst result. changed: whether results changed in the last
    // round.
    bool go_on(float worst, bool changed) {
        if (!order || !adapts() || next == scan.codec.units) return false;
        const bool many = static_cast<double>(next) > MOST * usual();
        if (many && !changed) return false;
        if (many) order->use_all(next);
        const size_t twice = std::min(scan.codec.units, 2 * next + 1);
        const bool like_collection = linked() && worst >= scan.codec.near * scan.query.deviation;
        const float margin = like_collection ? extent.margin : extent.further, below = like_collection ? extent.less_below : extent.below;
        const size_t near = lists_above(order->score(0) - margin, scan.codec.units);
        const size_t far = lists_above(worst - scan.query.offset - below, scan.codec.units);
        target = std::max(near, far);
        until = std::min(far, std::max(near, twice));
        if (changed) until = std::max(until, std::min(near, twice));
        return until > next;
    }
    // How many times as many candidates are kept as for a query that wants the usual number of lists.
    double depth() const {
        if (!adapts()) return 1;
        const double lists = static_cast<double>(std::max(until, target)), all = static_cast<double>(scan.codec.units), more = lists - usual();
        return std::clamp(std::max(lists / (2 * usual()), DEPTH * more / std::max(all - usual(), 1.0)), 1.0, DEPTH);
    }

    // Whether the query itself tells which lists are read.
    bool adapts() const { return extent.margin > -INF; }
    // Whether further rounds are for queries that are unlike the collection: a walk finds what is near for others.
    bool linked() const { return scan.limits.beam && scan.limits.lists < scan.limits.further; }
    // The lists that a query like the collection reads.
    double usual() const { return std::pow(static_cast<double>(scan.codec.units), scan.limits.further); }
    // Where those of the lists from `next` to `most` end that have at least this score.
    size_t lists_above(float score, size_t most) {
        size_t n = next;
        while (n < most && !(order->score(n) < score)) ++n;
        return n;
    }

    // The parts of a list: one per segment.
    template <typename Use>
    void for_each_part(size_t unit, Use&& use) const {
        for (size_t s = 0; s < segment_count; ++s) {
            const ListSegment& segment = scan.segments[s];
            if (segment.codec != number || !segment.count || !segment.starts) continue;
            const size_t from = static_cast<size_t>(segment.starts[unit]), to = static_cast<size_t>(segment.starts[unit + 1]);
            if (from < to) use(static_cast<uint32_t>(s), from, to);
        }
    }

    // The u-th list, which is read next.
    size_t take(size_t u) {
        const size_t unit = order->unit(u);
        if (totals) decoded += totals->rows[unit], found += totals->visible[unit];
        ++scan.counts.lists;
        return unit;
    }
    float reach_of(size_t u) const {
        if (scan.limits.everything) return code_reach;
        return code_reach * (scan.pool.round ? FURTHER : std::max(least_reach, reach_of_list(u, until)));
    }
    void read(size_t u) {
        const size_t unit = take(u);
        if (u + 1 < until)
            for_each_part(order->unit(u + 1),
                          [&](uint32_t s, size_t from, size_t to) { scan.fetch(scan.segments[s], from, to); });
        scan.code_reach = reach_of(u);
        for_each_part(unit, [&](uint32_t s, size_t from, size_t to) { scan.decode(s, from, to, scan.query.c[unit]); });
    }
    // Reads the lists of this round, and further ones until there is enough.
    void read_round() {
        if (!order) return;
        for (; next < scan.codec.units; ++next) {
            if (next >= until) {
                scan.finish();  // so that the pool holds all that was found
                if (!totals) decoded = scan.counts.decoded - before, found = static_cast<int64_t>(scan.pool.list.size());
                if (decoded >= extent.least && found >= extent.enough) break;
            }
            read(next);
        }
        scan.finish();
    }
};

#if defined(LOGT_AMX)

// Vectors of a list for many queries at once. Each number is computed as by Scan::decode and Scan::read_signs, but for one vector
// and 16 queries instead of one query and 16 vectors: then the signs are multiplied as matrices, and c is not gathered.
class Joint {
  public:
    using SignTiles = Products<8>;

    explicit Joint(Vector<ListReader>& readers)
        : readers_(readers), signs_(readers[0].scan.codec.sign_bytes, readers.size()),
          c_(readers[0].scan.codec.units * signs_.stride()), queries_(signs_.tiles()) {
        const size_t stride = signs_.stride(), units = readers[0].scan.codec.units;
        std::memset(c_.data, 0, units * stride * sizeof(float));
        for (size_t r = 0; r < readers.size(); ++r) {
            const Scan& scan = readers[r].scan;
            signs_.set(r, scan.query.signs);
            for (size_t unit = 0; unit < units; ++unit) c_[unit * stride + r] = scan.query.c[unit];
            Sixteen& mine = queries_[r / TILE];
            mine.offset[r % TILE] = scan.query.offset;
            mine.step[r % TILE] = scan.query.signs.step;
            mine.half_sum[r % TILE] = scan.query.signs.half_sum;
        }
    }

    // A query that wants the next list, and how far it may exceed the estimates of the codes.
    void add(size_t reader, float reach) {
        Sixteen& mine = queries_[reader / TILE];
        ++count_;
        tiles_ |= 1u << reader / TILE;
        mine.wanted |= 1u << reader % TILE;
        mine.code_reach[reader % TILE] = reach;
        mine.sign_reach[reader % TILE] = readers_[reader].scan.sign_reach;
        mine.threshold[reader % TILE] = readers_[reader].scan.pool.threshold;
    }
    // Whether that is quicker than reading the list for each of them. As measured, a tile of queries takes as long as 2.5
    // queries alone, and unpacking the signs as 1.5.
    bool pays() const { return 2 * count_ >= 3 + 5 * static_cast<size_t>(__builtin_popcount(tiles_)); }

    void read(size_t unit) {
        readers_[0].for_each_part(unit, [&](uint32_t s, size_t from, size_t to) {
            entries_.resize(readers_[0].scan.segments[s].entries);
            for (size_t p = from; p < to; p += SignTiles::BLOCK) {
                const size_t stop = std::min(to, p + SignTiles::BLOCK);
                const int32_t* dots = signs_.multiply(readers_[0].scan.sign_bits(s, static_cast<uint32_t>(p)), stop - p, tiles_);
                for (size_t at = p; at < stop; ++at, dots += signs_.stride()) decode(s, static_cast<uint32_t>(at), unit, dots);
            }
            for (uint32_t tiles = tiles_; tiles; tiles &= tiles - 1) count(queries_[place(tiles)], place(tiles), to - from);
        });
    }
    void clear() {
        for (uint32_t tiles = tiles_; tiles; tiles &= tiles - 1) queries_[place(tiles)].wanted = 0;
        tiles_ = 0, count_ = 0;
    }

  private:
    static constexpr size_t TILE = SignTiles::TILE;
    using Float = Vectors<TILE>::Float;
    using Int = Vectors<TILE>::Int;
    struct Sixteen {
        Float offset = {}, step = {}, half_sum = {}, sign_reach = {}, code_reach = {}, threshold = {};
        uint32_t wanted = 0;
    };
    static size_t place(uint32_t bits) { return static_cast<size_t>(__builtin_ctz(bits)); }

    void count(const Sixteen& tile, size_t number, size_t rows) {
        for (uint32_t wanted = tile.wanted; wanted; wanted &= wanted - 1) {
            Counts& counts = readers_[number * TILE + place(wanted)].scan.counts;
            counts.decoded += static_cast<int64_t>(rows), counts.signs += static_cast<int64_t>(rows);
        }
    }
    void decode(uint32_t segment, uint32_t p, size_t list, const int32_t* dots) {
        const ListSegment& s = readers_[0].scan.segments[segment];
        if (Scan::hidden(s, p)) return;
        const float factor = s.factor[p], scale = s.scale[p], bias = s.bias ? s.bias[p] : 0;
        for (size_t e = 0; e < s.entries; ++e)
            entries_[e] = {static_cast<float>(s.weight[e * s.rows + p]),
                           c_.data + (e ? s.unit_of(e - 1, p) : list) * signs_.stride()};
        for (uint32_t tiles = tiles_; tiles; tiles &= tiles - 1) {
            const size_t tile = place(tiles), first = tile * TILE;
            Sixteen& mine = queries_[tile];
            Float sum = entries_[0].weight * logt::read<Float>(entries_[0].c + first);
            for (size_t e = 1; e < entries_.size(); ++e) sum += entries_[e].weight * logt::read<Float>(entries_[e].c + first);
            const Float estimate = sum * scale + mine.offset + bias;
            const Float dot = __builtin_convertvector(logt::read<Int>(dots + first), Float) - mine.half_sum;
            const Float lower = estimate + factor * mine.step * dot + factor * mine.sign_reach;
            const Float reach = estimate + factor * mine.code_reach;
            const Float bound = (Float)_mm512_min_ps((__m512)lower, (__m512)reach);
            uint32_t wanted = _mm512_cmp_ps_mask((__m512)bound, (__m512)mine.threshold, _CMP_GE_OQ) & mine.wanted;
            for (; wanted; wanted &= wanted - 1) {
                const size_t q = place(wanted);
                Scan& scan = readers_[first + q].scan;
                scan.use_signs({segment, p, factor, estimate[q], bound[q], dots[first + q]});
                mine.threshold[q] = scan.pool.threshold;
            }
        }
    }

    struct Entry {
        float weight;
        const float* c;  // of its unit
    };
    Vector<ListReader>& readers_;
    SignTiles signs_;
    Buffer<float> c_;  // (units, queries)
    Vector<Sixteen> queries_;
    Vector<Entry> entries_;  // of a vector
    uint32_t tiles_ = 0;     // that have queries which want the list
    size_t count_ = 0;       // of these queries
};

#endif

// Several queries in the segments of one codec, list by list: a list is read once for all queries that want it. What they
// find does not depend on the order (pool.hpp), but the first lists of each query make a threshold that spares the others.
class ReadersTogether {
  public:
    explicit ReadersTogether(Vector<ListReader>& readers)
        : readers_(readers)
#if defined(LOGT_AMX)
          ,
          joint_(readers)
#endif
    {
    }

    // Reads the lists of a round of each query.
    void read_round() {
        constexpr size_t FIRST = 4;
        const size_t units = readers_[0].scan.codec.units;
        Vector<size_t> starts(units + 1, 0);
        for (ListReader& reader : readers_) {
            for (; reader.next < std::min(FIRST, reader.until); ++reader.next) reader.read(reader.next);
            for (size_t u = reader.next; u < reader.until; ++u) ++starts[reader.take(u) + 1];
        }
        for (size_t unit = 0; unit < units; ++unit) starts[unit + 1] += starts[unit];
        Vector<Visit> visits(starts[units]);
        Vector<size_t> next(starts.begin(), starts.end() - 1);
        for (size_t r = 0; r < readers_.size(); ++r)
            for (size_t& u = readers_[r].next; u < readers_[r].until; ++u)
                visits[next[readers_[r].order->unit(u)]++] = {static_cast<uint32_t>(r), readers_[r].reach_of(u)};
        for (size_t unit = 0; unit < units; ++unit) read(unit, visits.data() + starts[unit], visits.data() + starts[unit + 1]);
        for (ListReader& reader : readers_)
            if (reader.until) reader.read_round();
    }

  private:
    struct Visit {
        uint32_t reader;
        float reach;
    };
    void read(size_t unit, const Visit* begin, const Visit* end) {
#if defined(LOGT_AMX)
        joint_.clear();
        for (const Visit* v = begin; v < end; ++v) joint_.add(v->reader, v->reach);
        if (joint_.pays()) return joint_.read(unit);
#endif
        readers_[0].for_each_part(unit, [&](uint32_t s, size_t from, size_t to) {
            for (const Visit* v = begin; v < end; ++v) {
                Scan& scan = readers_[v->reader].scan;
                scan.code_reach = v->reach;
                scan.decode(s, from, to, scan.query.c[unit]);
            }
        });
    }

    Vector<ListReader>& readers_;
#if defined(LOGT_AMX)
    Joint joint_;
#endif
};

}  // namespace
}  // namespace logt
