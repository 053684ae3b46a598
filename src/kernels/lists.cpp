// The search of the default index. Compiled once per instruction set (LOGT_LISTS names the copy); everything but the
// table has internal linkage.
//
// For each query: measure the memory vectors (c), decode the sparse codes of the lists with the highest scores, and read
// the residual only of vectors that can still be among the best: first the signs, then all bits, then the supplement.
// "Can still": their estimate so far, plus a number of deviations of what was not read, reaches the worst candidate.
#include "lists.hpp"

#include <algorithm>
#include <cmath>

#include "pool.hpp"
#include "query.hpp"
#include "scan.hpp"
#include "tiles.hpp"
#include "walk.hpp"

namespace logt {
namespace {

// ---------------------------------------------------------------------------------------------------- search

// Most of the nearest vectors are in the first lists: these are pruned less than average, the last ones more. Depends on
// the rank of a list only, so that it is the same in all shards.
inline float reach_of_list(size_t rank, size_t nprobe) {
    constexpr float FIRST = 1.6f, LAST = 0.85f;
    const float place = std::min(1.0f, static_cast<float>(rank) / static_cast<float>(nprobe));
    return FIRST - (FIRST - LAST) * std::sqrt(place);
}

// How far a search reads the lists of a codec: `nprobe` lists, and further ones until it has decoded `least` vectors and
// found `enough`. rows, visible: vectors in lists. others: vectors that were found before.
struct Extent {
    size_t nprobe;
    int64_t least, enough;
};
Extent extent_of(const Codec& codec, const Reading& reading, size_t R, size_t rows, size_t visible, size_t others) {
    const double wider = static_cast<double>(rows) / static_cast<double>(visible);  // a filter hides vectors of each list
    const double share = reading.nprobe ? static_cast<double>(reading.nprobe)
                                        : std::pow(static_cast<double>(codec.units), reading.lists);
    const double lists = std::min(std::ceil(share * wider), static_cast<double>(codec.units));
    return {reading.everything ? codec.units : static_cast<size_t>(lists),
            static_cast<int64_t>(static_cast<double>(reading.least) * wider),
            static_cast<int64_t>(std::min(R, others + visible))};
}

// One query in the segments of one codec. totals: of this codec, or null if there are no other shards. found: visible vectors
// of the lists that were read so far, in all shards.
struct ListReader {
    Scan& scan;
    const size_t number, segment_count;
    const Totals* totals;
    int64_t& found;
    ListOrder order;
    Extent extent = {0, 0, 0};
    int64_t decoded = 0, before = 0;
    const float code_reach;

    // Reads what is not in lists: small segments, and the rows that a filter chose.
    ListReader(Scan& scan, size_t number, size_t segment_count, const Totals* totals, int64_t& found)
        : scan(scan), number(number), segment_count(segment_count), totals(totals), found(found),
          order(scan.codec, scan.query), code_reach(scan.code_reach) {
        size_t rows = 0, visible = 0;           // in inverted lists
        size_t others = scan.pool.list.size();  // found before: of other codecs, and those without lists
        for (size_t s = 0; s < segment_count; ++s) {
            const ListSegment& segment = scan.segments[s];
            if (segment.codec != number || !segment.count) continue;
            if (!segment.starts || segment.chosen) others += segment.chosen ? segment.chosen_count : segment.count;
            if (segment.chosen) scan.decode_chosen(static_cast<uint32_t>(s));
            else if (!segment.starts) scan.decode(static_cast<uint32_t>(s), 0, segment.rows, 0);
            else rows += segment.rows, visible += segment.count;
        }
        if (totals) rows = totals->all_rows, visible = totals->all_visible, found += totals->scanned, others = found;
        if (rows) extent = extent_of(scan.codec, scan.reading, scan.pool.wanted, rows, visible, others);
        before = scan.counts.decoded;
        if (!rows) scan.finish();
    }

    // The parts of a list: one per segment.
    template <typename Use>
    void for_each_part(size_t unit, Use&& use) const {
        for (size_t s = 0; s < segment_count; ++s) {
            const ListSegment& segment = scan.segments[s];
            if (segment.codec != number || !segment.count || segment.chosen || !segment.starts) continue;
            const size_t from = static_cast<size_t>(segment.starts[unit]), to = static_cast<size_t>(segment.starts[unit + 1]);
            if (from < to) use(static_cast<uint32_t>(s), from, to);
        }
    }

    // The u-th list, which is read next.
    size_t take(size_t u) {
        const size_t unit = order.unit(u, extent.nprobe);
        if (totals) decoded += totals->rows[unit], found += totals->visible[unit];
        ++scan.counts.lists;
        return unit;
    }
    float reach_of(size_t u) const {
        return code_reach * (scan.reading.everything ? 1 : reach_of_list(u, extent.nprobe));
    }
    void read(size_t u) {
        const size_t unit = take(u);
        if (u + 1 < extent.nprobe)
            for_each_part(order.unit(u + 1, extent.nprobe),
                          [&](uint32_t s, size_t from, size_t to) { scan.fetch(scan.segments[s], from, to); });
        scan.code_reach = reach_of(u);
        for_each_part(unit, [&](uint32_t s, size_t from, size_t to) { scan.decode(s, from, to, scan.query.c[unit]); });
    }
    // Reads all lists from the first-th on that are wanted, and further ones until there is enough.
    void read_from(size_t first) {
        if (!extent.nprobe) return;
        for (size_t u = first; u < scan.codec.units; ++u) {
            if (u >= extent.nprobe) {
                scan.finish();  // so that the pool holds all that was found
                if (!totals) decoded = scan.counts.decoded - before, found = static_cast<int64_t>(scan.pool.list.size());
                if (decoded >= extent.least && found >= extent.enough) break;
            }
            read(u);
        }
        scan.finish();
    }
};

// Several queries in the segments of one codec, list by list: a list is read once for all queries that want it. What they
// find does not depend on the order (pool.hpp), but the first lists of each query make a threshold that spares the others.
void read_together(Vector<ListReader>& readers) {
    constexpr size_t FIRST = 4;
    struct Visit {
        uint32_t reader;
        float reach;
    };
    const Codec& codec = readers[0].scan.codec;
    Vector<size_t> starts(codec.units + 1, 0);
    for (ListReader& reader : readers) {
        for (size_t u = 0; u < std::min(FIRST, reader.extent.nprobe); ++u) reader.read(u);
        for (size_t u = FIRST; u < reader.extent.nprobe; ++u) ++starts[reader.take(u) + 1];
    }
    for (size_t unit = 0; unit < codec.units; ++unit) starts[unit + 1] += starts[unit];
    Vector<Visit> visits(starts[codec.units]);
    Vector<size_t> next(starts.begin(), starts.end() - 1);
    for (size_t r = 0; r < readers.size(); ++r)
        for (size_t u = FIRST; u < readers[r].extent.nprobe; ++u)
            visits[next[readers[r].order.unit(u, 0)]++] = {static_cast<uint32_t>(r), readers[r].reach_of(u)};
    const auto decode = [&](size_t v, size_t unit, uint32_t s, size_t from, size_t to, const int32_t* dots) {
        Scan& scan = readers[visits[v].reader].scan;
        scan.code_reach = visits[v].reach;
        scan.decode(s, from, to, scan.query.c[unit], dots);
    };
#if defined(LOGT_AMX)
    constexpr size_t LEAST = 4;  // queries for which the products of all heads are worth their time
    using Heads = Products<8>;
    Heads heads(codec.head_bytes, readers.size());
    for (size_t r = 0; r < readers.size(); ++r) heads.set(r, readers[r].scan.query.signs);
#endif
    for (size_t unit = 0; unit < codec.units; ++unit) {
        const size_t begin = starts[unit], end = starts[unit + 1];
        if (begin == end) continue;
#if defined(LOGT_AMX)
        if (end - begin >= LEAST) {
            heads.choose(end - begin, [&](size_t i) { return visits[begin + i].reader; });
            readers[0].for_each_part(unit, [&](uint32_t s, size_t from, size_t to) {
                for (size_t p = from; p < to; p += Heads::BLOCK) {
                    const size_t stop = std::min(to, p + Heads::BLOCK);
                    const int32_t* dots = heads.multiply(readers[0].scan.head(s, static_cast<uint32_t>(p)), stop - p);
                    for (size_t v = begin; v < end; ++v) decode(v, unit, s, p, stop, dots + (v - begin) * Heads::BLOCK);
                }
            });
            continue;
        }
#endif
        readers[0].for_each_part(unit, [&](uint32_t s, size_t from, size_t to) {
            for (size_t v = begin; v < end; ++v) decode(v, unit, s, from, to, nullptr);
        });
    }
    for (ListReader& reader : readers) reader.read_from(reader.extent.nprobe);
}

void fetch_supplement(const Codec* codecs, const ListSegment& s, uint32_t position) {
    const size_t dim = codecs[s.codec].dim;
    if (s.supplement) fetch_bytes(s.supplement + s.row[position] * dim, dim);
}

// One query in all segments.
struct Search {
    const Codec* codecs;
    const ListSegment* segments;
    Pool pool;
    Vector<Scan> scans = {};  // by codec
    int64_t found = 0;

    // Reads the supplement of the candidates, and sorts the k best of them.
    void refine(size_t k) {
        pool.R = pool.wanted;
        pool.cut();
        constexpr size_t AHEAD = 2;
        for (size_t r = 0; r < pool.list.size() + AHEAD; ++r) {
            if (r < pool.list.size()) fetch_supplement(codecs, segments[pool.list[r].segment], pool.list[r].position);
            if (r < AHEAD) continue;
            Candidate& c = pool.list[r - AHEAD];
            const ListSegment& segment = segments[c.segment];
            Scan& scan = scans[segment.codec];
            c.score += scan.refinement(c.segment, c.position, scan.list_of(segment, c.position));
            if (std::isnan(c.score)) c.score = -INF;
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

void search(const Codec* codecs, size_t codec_count, const ListSegment* segments, size_t segment_count, const float* Q,
            size_t queries, float scale, bool l2, const Reading& reading, size_t k, const Totals* totals, const Graph* graph,
            Results results, Counts* counts) {
    constexpr size_t FEW = 4, MANY = 64, NUMBERS = 1 << 21;  // queries, and numbers that are kept for all of them, at a time
    const size_t beam = graph && !reading.everything ? reading.beam : 0, wanted = std::max(k, reading.candidates);
    size_t each = wanted + 1;  // a candidate, or a unit of the largest codec
    for (size_t m = 0; m < codec_count; ++m) each = std::max(each, codecs[m].units);
    const size_t together = beam ? FEW : std::clamp<size_t>(NUMBERS / each, 1, MANY);
    const size_t dim = codec_count ? codecs[0].dim : 0;
    size_t rows = 0;
    for (size_t s = 0; s < segment_count; ++s) rows += segments[s].rows;
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
        for (size_t m = 0; m < codec_count; ++m) {
            for (size_t q = 0; q < n; ++q) prepared.emplace_back(codecs[m], Q + (first + q) * dim, scale, l2);
            measure(codecs[m], &prepared[m * n], n);
            Vector<ListReader> readers;
            readers.reserve(n);
            for (size_t q = 0; q < n; ++q) {
                Search& mine = searches[q];
                mine.scans.emplace_back(codecs[m], segments, prepared[m * n + q], reading, mine.pool, counts[first + q]);
                readers.emplace_back(mine.scans[m], m, segment_count, totals ? totals + m : nullptr, mine.found);
            }
            if (n > 1 && !beam) read_together(readers);
            else
                for (ListReader& reader : readers) reader.read_from(0);
        }
        for (size_t q = 0; q < n; ++q) {
            Search& mine = searches[q];
            if (beam) {
                mine.pool.widen(beam);
                Walk{*graph, segments, mine.scans, mine.pool}.run(beam);
            }
            mine.refine(k);
            mine.write(results, first + q, k);
        }
    }
}

void probed(const Codec* codecs, size_t codec_count, const float* Q, size_t queries, float scale, bool l2,
            const Reading& reading, const Totals* totals, uint8_t* read) {
    const size_t dim = codec_count ? codecs[0].dim : 0;
    for (const float* q = Q; q < Q + queries * dim; q += dim) {
        int64_t found = 0;
        uint8_t* mine = read;
        for (size_t m = 0; m < codec_count; mine += codecs[m++].units) {
            const Totals& all = totals[m];
            found += all.scanned;
            if (!all.all_rows) continue;
            const auto [nprobe, least, enough] = extent_of(codecs[m], reading, reading.candidates, all.all_rows,
                                                        all.all_visible, static_cast<size_t>(found));
            Query query(codecs[m], q, scale, l2);
            measure(codecs[m], &query, 1);
            ListOrder order(codecs[m], query);
            int64_t decoded = 0;
            for (size_t u = 0; u < codecs[m].units; ++u) {
                if (u >= nprobe && decoded >= least && found >= enough) break;
                const size_t unit = order.unit(u, nprobe);
                decoded += all.rows[unit], found += all.visible[unit];
                mine[unit] = 1;
            }
        }
    }
}

void scores(const Codec* codecs, const ListSegment& segment, const float* q, float scale, bool l2, size_t begin,
            size_t end, float* out) {
    const Codec& codec = codecs[segment.codec];
    Query query(codec, q, scale, l2);
    measure(codec, &query, 1);
    const Reading all = {1, 0, 0, 0, 0, 0, 0, true};
    Pool pool(&segment, 1, 0, 1);
    Counts counts;
    Scan scan(codec, &segment, query, all, pool, counts);
    size_t list = 0;
    for (size_t p = begin; p < end; ++p) {
        const uint32_t at = static_cast<uint32_t>(p);
        const float first = scan.first_of(segment, p, list);
        const bool hidden = segment.visible && !segment.visible[segment.row[p]];
        const float estimate = scan.with_all_bits(0, at, segment.factor[p], scan.estimate_one(segment, p, first));
        out[p - begin] = hidden ? -INF : estimate + scan.refinement(0, at, list);
    }
}

}  // namespace

const ListTable LOGT_LISTS = {rotate, search, probed, scores};

}  // namespace logt
