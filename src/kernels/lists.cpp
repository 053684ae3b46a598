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
Extent extent(const Codec& codec, const Reading& reading, size_t R, size_t rows, size_t visible, size_t others) {
    const double wider = static_cast<double>(rows) / static_cast<double>(visible);  // a filter hides vectors of each list
    const double share = reading.nprobe ? static_cast<double>(reading.nprobe)
                                        : std::pow(static_cast<double>(codec.units), reading.lists);
    const double lists = std::min(std::ceil(share * wider), static_cast<double>(codec.units));
    return {reading.everything ? codec.units : static_cast<size_t>(lists),
            static_cast<int64_t>(static_cast<double>(reading.least) * wider),
            static_cast<int64_t>(std::min(R, others + visible))};
}

// All segments of one codec. totals: of this codec, or null if there are no other shards. found: visible vectors of the
// lists that were read so far, in all shards.
void scan_codec(Scan& scan, size_t number, size_t segment_count, const Totals* totals, int64_t& found) {
    const ListSegment* segments = scan.segments;
    const Codec& codec = scan.codec;
    const Reading& reading = scan.reading;
    size_t rows = 0, visible = 0;           // in inverted lists
    size_t others = scan.pool.list.size();  // found before: of other codecs, and those without lists
    for (size_t s = 0; s < segment_count; ++s) {
        const ListSegment& segment = segments[s];
        if (segment.codec != number || !segment.count) continue;
        if (!segment.starts || segment.chosen) others += segment.chosen ? segment.chosen_count : segment.count;
        if (segment.chosen) scan.decode_chosen(static_cast<uint32_t>(s));
        else if (!segment.starts) scan.decode(static_cast<uint32_t>(s), 0, segment.rows, 0);
        else rows += segment.rows, visible += segment.count;
    }
    if (totals) rows = totals->all_rows, visible = totals->all_visible, found += totals->scanned, others = found;
    if (!rows) return scan.finish();
    const auto [nprobe, least, enough] = extent(codec, reading, scan.pool.wanted, rows, visible, others);
    const int64_t before = scan.counts.decoded;
    int64_t decoded = 0;  // in all shards
    ListOrder order(codec, scan.query);
    const float plain = scan.code_reach;
    const auto for_each_part = [&](size_t unit, auto&& use) {  // of a list: one per segment
        for (size_t s = 0; s < segment_count; ++s) {
            const ListSegment& segment = segments[s];
            if (segment.codec != number || !segment.count || segment.chosen || !segment.starts) continue;
            const size_t from = static_cast<size_t>(segment.starts[unit]), to = static_cast<size_t>(segment.starts[unit + 1]);
            if (from < to) use(static_cast<uint32_t>(s), from, to);
        }
    };
    for (size_t u = 0; u < codec.units; ++u) {
        if (u >= nprobe) {
            scan.finish();  // so that the pool holds all that was found
            if (!totals) decoded = scan.counts.decoded - before, found = static_cast<int64_t>(scan.pool.list.size());
            if (decoded >= least && found >= enough) break;
        }
        const size_t unit = order.unit(u, nprobe);
        if (totals) decoded += totals->rows[unit], found += totals->visible[unit];
        if (u + 1 < nprobe)
            for_each_part(order.unit(u + 1, nprobe),
                          [&](uint32_t s, size_t from, size_t to) { scan.fetch(segments[s], from, to); });
        ++scan.counts.lists;
        scan.code_reach = plain * (reading.everything ? 1 : reach_of_list(u, nprobe));
        for_each_part(unit, [&](uint32_t s, size_t from, size_t to) { scan.decode(s, from, to, scan.query.c[unit]); });
    }
    scan.finish();
}

void fetch_supplement(const Codec* codecs, const ListSegment& s, uint32_t position) {
    const size_t dim = codecs[s.codec].dim;
    if (s.supplement) fetch_bytes(s.supplement + s.row[position] * dim, dim);
}

void search(const Codec* codecs, size_t codec_count, const ListSegment* segments, size_t segment_count, const float* Q,
            size_t queries, float scale, bool l2, const Reading& reading, size_t k, const Totals* totals, const Graph* graph,
            Results results, Counts* counts) {
    constexpr size_t TOGETHER = 4;
    size_t rows = 0;
    for (size_t s = 0; s < segment_count; ++s) rows += segments[s].rows;
    const size_t dim = codec_count ? codecs[0].dim : 0;
    for (size_t first = 0; first < queries; first += TOGETHER) {
        const size_t n = std::min(TOGETHER, queries - first);
        Vector<Query> prepared;  // codec by codec
        prepared.reserve(codec_count * n);
        for (size_t m = 0; m < codec_count; ++m) {
            Query* each[TOGETHER];
            for (size_t q = 0; q < n; ++q) {
                prepared.emplace_back(codecs[m], Q + (first + q) * dim, scale, l2);
                each[q] = &prepared.back();
            }
            if (n == 4) measure<4>(codecs[m], each);
            else if (n == 3) measure<3>(codecs[m], each);
            else if (n == 2) measure<2>(codecs[m], each);
            else measure<1>(codecs[m], each);
        }
        for (size_t q = 0; q < n; ++q) {
            const size_t beam = graph && !reading.everything ? reading.beam : 0;
            Pool pool(segments, std::max(k, reading.candidates), beam, rows);
            Counts& count = counts[first + q];
            Vector<Scan> scans;
            scans.reserve(codec_count);
            int64_t found = 0;
            for (size_t m = 0; m < codec_count; ++m) {
                scans.emplace_back(codecs[m], segments, prepared[m * n + q], reading, pool, count);
                scan_codec(scans[m], m, segment_count, totals ? totals + m : nullptr, found);
            }
            if (beam) {
                pool.widen(beam);
                Walk{*graph, segments, scans, pool}.run(beam);
            }
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
            for (size_t r = 0; r < k; ++r) {
                const bool any = r < pool.list.size();
                const size_t at = (first + q) * k + r;
                results.scores[at] = any ? pool.list[r].score : -INF;
                results.ids[at] = any ? pool.id(pool.list[r]) : -1;
                if (results.keys) results.keys[at] = any ? pool.list[r].key : -INF;
            }
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
            const auto [nprobe, least, enough] = extent(codecs[m], reading, reading.candidates, all.all_rows,
                                                        all.all_visible, static_cast<size_t>(found));
            Query query(codecs[m], q, scale, l2);
            Query* one[1] = {&query};
            measure<1>(codecs[m], one);
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
    Query* one[1] = {&query};
    measure<1>(codec, one);
    const Reading all = {1, 0, 0, 0, 0, 0, 0, true};
    Pool pool(&segment, 1, 0, 1);
    Counts counts;
    Scan scan(codec, &segment, query, all, pool, counts);
    size_t list = 0;
    for (size_t p = begin; p < end; ++p) {
        const uint32_t at = static_cast<uint32_t>(p);
        const float first = scan.first_of(segment, p, list);
        const bool hidden = segment.visible && !segment.visible[segment.row[p]];
        const float estimate = scan.with_all_bits(0, at, scan.estimate_one(segment, p, first));
        out[p - begin] = hidden ? -INF : estimate + scan.refinement(0, at, list);
    }
}

}  // namespace

const ListTable LOGT_LISTS = {rotate, search, probed, scores};

}  // namespace logt
