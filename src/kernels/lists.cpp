// The search of the default index. Compiled once per instruction set (LOGT_LISTS names the copy); everything but the
// table has internal linkage.
//
// For each query: measure the memory vectors (c), decode the sparse codes of the lists with the highest scores, and read
// the residual only of vectors that can still be among the best: first the signs, then all bits, then the supplement.
// "Can still": their estimate so far, plus a number of deviations of what was not read, reaches the worst candidate.
#include "lists.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "bits.hpp"
#include "lanes.hpp"
#include "pool.hpp"
#include "query.hpp"

namespace logt {
namespace {

// -------------------------------------------------------------------------------------------------- scanning

inline void fetch_bytes(const void* data, size_t bytes) {
    const char* first = static_cast<const char*>(data);
    for (size_t at = 0; at < bytes; at += 64) __builtin_prefetch(first + at);
    __builtin_prefetch(first + bytes - 1);
}

// Vectors that wait for their residual to be read, which is fetched into the cache meanwhile.
template <size_t SIZE>
struct Queue {
    uint32_t segment[SIZE], position[SIZE];
    float estimate[SIZE], bound[SIZE];
    size_t held = 0;

    bool add(uint32_t s, uint32_t p, float e, float b) {  // whether it is full now
        segment[held] = s, position[held] = p, estimate[held] = e, bound[held] = b;
        return ++held == SIZE;
    }
};

struct Scan {
    const Codec& codec;
    const ListSegment* segments;
    Query& query;
    const Reading& reading;
    Pool& pool;
    Counts& counts;
    Queue<64> heads;
    Queue<16> tails;
    float code_reach;
    const float head_reach;
    static constexpr float FAR = 3e38f;

    Scan(const Codec& codec, const ListSegment* segments, Query& query, const Reading& reading, Pool& pool,
         Counts& counts)
        : codec(codec), segments(segments), query(query), reading(reading), pool(pool), counts(counts),
          code_reach(reading.everything ? FAR : reading.code_reach * query.deviation),
          head_reach(reading.everything ? FAR : reading.head_reach * query.head_error) {}

    void finish() {
        read_heads();
        read_tails();
    }

    // Fetches the codes of positions from..to-1 into the cache: they are few, in many places, and the next to be decoded.
    void fetch(const ListSegment& s, size_t from, size_t to) const {
        const size_t listed = s.starts ? 1 : 0, unit_size = s.wide ? 4 : 2;
        for (size_t e = 0; e < s.entries; ++e) fetch_bytes(s.weight + e * s.rows + from, to - from);
        for (size_t e = listed; e < s.entries; ++e) {
            const size_t at = (e - listed) * s.rows + from;
            fetch_bytes(static_cast<const uint8_t*>(s.unit) + at * unit_size, (to - from) * unit_size);
        }
        for (const float* values : {s.scale, s.factor, s.bias})
            if (values) fetch_bytes(values + from, (to - from) * sizeof(float));
    }

    // Estimates positions from..to-1 by their codes. With lists, `first` is c of the unit whose list they are in.
    void decode(uint32_t segment, size_t from, size_t to, float first) {
        counts.decoded += static_cast<int64_t>(to - from);
        if (segments[segment].wide) decode_as<uint32_t>(segment, from, to, first);
        else decode_as<uint16_t>(segment, from, to, first);
    }

    template <typename Unit>
    void decode_as(uint32_t segment, size_t from, size_t to, float first) {
        const ListSegment& s = segments[segment];
        using Part = Vectors<GATHER>::Float;
        const size_t listed = s.starts ? 1 : 0;
        const Unit* unit = static_cast<const Unit*>(s.unit);
        alignas(64) float estimate[LANES], reach[LANES];
        size_t p = from;
        for (; p + LANES <= s.rows && p < to; p += LANES) {
            LanesOf<GATHER> sum = {};
            if (listed)
                for (size_t i = 0; i < sum.PARTS; ++i) sum.part[i] = widened<GATHER>(s.weight + p + i * GATHER) * first;
            for (size_t e = listed; e < s.entries; ++e)
                sum.add(weights<GATHER>(s.weight + e * s.rows + p, 0, LANES),
                        gather(query.c.data, unit + (e - listed) * s.rows + p));
            for (size_t i = 0; i < sum.PARTS; ++i) {
                const size_t at = p + i * GATHER;
                Part value = sum.part[i] * read<Part>(s.scale + at) + query.offset;
                if (s.bias) value += read<Part>(s.bias + at);
                std::memcpy(estimate + i * GATHER, &value, sizeof value);
                value += read<Part>(s.factor + at) * code_reach;
                std::memcpy(reach + i * GATHER, &value, sizeof value);
            }
            uint32_t wanted = not_below(reach, pool.threshold);
            if (to - p < LANES) wanted &= (1u << (to - p)) - 1;
            for (; wanted; wanted &= wanted - 1) {
                const size_t l = static_cast<size_t>(__builtin_ctz(wanted));
                wait_for_head(segment, static_cast<uint32_t>(p + l), estimate[l], reach[l]);
            }
        }
        for (; p < to; ++p) {
            const float value = estimate_one(s, p, first), bound = value + s.factor[p] * code_reach;
            if (bound >= pool.threshold) wait_for_head(segment, static_cast<uint32_t>(p), value, bound);
        }
    }

    // The positions that a filter passes, in increasing order.
    void decode_chosen(uint32_t segment) {
        const ListSegment& s = segments[segment];
        counts.decoded += static_cast<int64_t>(s.chosen_count);
        size_t list = 0;
        for (size_t i = 0; i < s.chosen_count; ++i) {
            const uint32_t p = s.chosen[i];
            const float value = estimate_one(s, p, first_of(s, p, list)), bound = value + s.factor[p] * code_reach;
            if (bound >= pool.threshold) wait_for_head(segment, p, value, bound);
        }
    }

    // c of the unit whose list holds p; `list` is the list of an earlier position, and then of p.
    float first_of(const ListSegment& s, size_t p, size_t& list) const {
        if (!s.starts) return 0;
        while (s.starts[list + 1] <= static_cast<int64_t>(p)) ++list;
        return query.c[list];
    }
    // The unit whose list holds p.
    size_t list_of(const ListSegment& s, size_t p) const {
        if (!s.starts) return 0;
        const int64_t* end = std::upper_bound(s.starts, s.starts + codec.units + 1, static_cast<int64_t>(p));
        return static_cast<size_t>(end - s.starts) - 1;
    }

    float estimate_one(const ListSegment& s, size_t p, float first) const {
        const size_t listed = s.starts ? 1 : 0;
        float sum = listed ? static_cast<float>(s.weight[p]) * first : 0;
        for (size_t e = listed; e < s.entries; ++e)
            sum += static_cast<float>(s.weight[e * s.rows + p]) * query.c[unit_of(s, e - listed, p)];
        return sum * s.scale[p] + query.offset + (s.bias ? s.bias[p] : 0);
    }

    static uint32_t not_below(const float (&values)[LANES], float threshold) {
#if defined(__ARM_NEON) && defined(__aarch64__)
        const float32x4_t t = vdupq_n_f32(threshold);
        const uint32x4_t bits = {1, 2, 4, 8};
        uint32_t mask = 0;
        for (size_t i = 0; i < LANES; i += 4)
            mask |= vaddvq_u32(vandq_u32(vcgeq_f32(vld1q_f32(values + i), t), bits)) << i;
        return mask;
#else
        uint32_t mask = 0;
        for (size_t l = 0; l < LANES; ++l) mask |= static_cast<uint32_t>(values[l] >= threshold) << l;
        return mask;
#endif
    }

    const uint8_t* head(uint32_t segment, uint32_t p) const { return segments[segment].head + p * codec.head_bytes; }
    const uint8_t* tail(uint32_t segment, uint32_t p) const { return segments[segment].tail + p * codec.tail_bytes; }

    void wait_for_head(uint32_t segment, uint32_t p, float estimate, float bound) {
        fetch_bytes(head(segment, p), codec.head_bytes);
        if (heads.add(segment, p, estimate, bound)) read_heads();
    }

    void read_heads() {
        const size_t count = std::exchange(heads.held, 0);
        counts.heads += static_cast<int64_t>(count);
        const Weights& w = query.signs;
        const float reach = query.one_bit ? 0 : head_reach;
        for (size_t i = 0; i < count; i += 2) {
            const size_t last = std::min(i + 1, count - 1);
            const uint8_t* code[2] = {head(heads.segment[i], heads.position[i]),
                                      head(heads.segment[last], heads.position[last])};
            int32_t dots[2];
            bit_dots<2>(code, w.values.data, codec.head_bytes, dots);
            for (size_t n = i; n <= last; ++n) {
                const uint32_t segment = heads.segment[n], p = heads.position[n];
                const ListSegment& s = segments[segment];
                const float better = heads.estimate[n] + s.factor[p] * w.step * (static_cast<float>(dots[n - i]) - w.half_sum);
                const float bound = std::min(heads.bound[n], better + s.factor[p] * reach);
                if (!(bound >= pool.threshold)) continue;
                if (s.visible && !s.visible[s.row[p]]) continue;
                if (query.one_bit) pool.offer(bound, better, segment, p);
                else wait_for_tail(segment, p, heads.estimate[n], bound);
            }
        }
    }

    void wait_for_tail(uint32_t segment, uint32_t p, float estimate, float bound) {
        fetch_bytes(tail(segment, p), codec.tail_bytes);
        if (tails.add(segment, p, estimate, bound)) read_tails();
    }

    void read_tails() {
        const size_t count = std::exchange(tails.held, 0);
        counts.tails += static_cast<int64_t>(count);
        for (size_t i = 0; i < count; ++i) {
            const uint32_t segment = tails.segment[i], p = tails.position[i];
            pool.offer(tails.bound[i], with_all_bits(segment, p, tails.estimate[i]), segment, p);
        }
    }

    float with_all_bits(uint32_t segment, uint32_t p, float estimate) const {
        const Weights& w = query.one_bit ? query.signs : query.head;
        const uint8_t* code[1] = {head(segment, p)};
        int32_t dot[1];
        bit_dots<1>(code, w.values.data, codec.head_bytes, dot);
        float sum = static_cast<float>(dot[0]) - w.half_sum;
        if (!query.one_bit) {
            code[0] = tail(segment, p);
            bit_dots<1>(code, query.tail.values.data, codec.tail_bytes, dot);
            sum += static_cast<float>(dot[0]) - query.tail.half_sum;
        }
        return estimate + segments[segment].factor[p] * w.step * sum;
    }

    // What rounding the query to int8 leaves out of the score of a vector, and what its supplement adds.
    float refinement(uint32_t segment, uint32_t p, size_t first) {
        const ListSegment& s = segments[segment];
        if (!s.supplement) return 0;
        float sum = s.starts ? static_cast<float>(s.weight[p]) * fine_of(first) : 0;
        const size_t listed = s.starts ? 1 : 0;
        for (size_t e = listed; e < s.entries; ++e)
            sum += static_cast<float>(s.weight[e * s.rows + p]) * fine_of(unit_of(s, e - listed, p));
        sum *= s.scale[p];
        const Weights& w = query.one_bit ? query.signs : query.head;
        const uint8_t* code[1] = {head(segment, p)};
        int32_t dot[1];
        bit_dots<1>(code, w.fine.data, codec.head_bytes, dot);
        float bits = static_cast<float>(dot[0]) - w.fine_half_sum;
        if (!query.one_bit) {
            code[0] = tail(segment, p);
            bit_dots<1>(code, query.tail.fine.data, codec.tail_bytes, dot);
            bits += static_cast<float>(dot[0]) - query.tail.fine_half_sum;
        }
        sum += s.factor[p] * (w.step / Weights::FINE) * bits;
        const size_t row = s.row[p];
        return sum + s.supplement_scale[row] * byte_dot(s.supplement + row * codec.dim, query.z.data, codec.dim);
    }

    float fine_of(size_t unit) {
        float& value = query.fine[unit];
        if (std::isnan(value)) {
            const uint8_t* code[1] = {codec.book + unit * codec.book_bytes};
            const int8_t* weights[1] = {query.book.fine.data};
            int32_t dot[1][1];
            nibble_dots<1, 1>(code, weights, codec.book_bytes, dot);
            const float step = query.book.step / Weights::FINE;
            value = codec.book_scale[unit] * step * (static_cast<float>(dot[0][0]) - 15 * query.book.fine_half_sum);
        }
        return value;
    }

    static size_t unit_of(const ListSegment& s, size_t entry, size_t p) {
        const size_t at = entry * s.rows + p;
        return s.wide ? static_cast<const uint32_t*>(s.unit)[at] : static_cast<const uint16_t*>(s.unit)[at];
    }
};

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
    const auto [nprobe, least, enough] = extent(codec, reading, scan.pool.R, rows, visible, others);
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
            size_t queries, float scale, bool l2, const Reading& reading, size_t k, const Totals* totals, Results results,
            Counts* counts) {
    constexpr size_t TOGETHER = 4;
    size_t rows = 0;
    for (size_t s = 0; s < segment_count; ++s) rows += segments[s].rows;
    const size_t dim = codec_count ? codecs[0].dim : 0;
    for (size_t first = 0; first < queries; first += TOGETHER) {
        const size_t n = std::min(TOGETHER, queries - first);
        std::vector<Query> prepared;  // codec by codec
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
            Pool pool(segments, std::max(k, reading.candidates), rows);
            Counts& count = counts[first + q];
            std::vector<Scan> scans;
            scans.reserve(codec_count);
            int64_t found = 0;
            for (size_t m = 0; m < codec_count; ++m) {
                scans.emplace_back(codecs[m], segments, prepared[m * n + q], reading, pool, count);
                scan_codec(scans[m], m, segment_count, totals ? totals + m : nullptr, found);
            }
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
            pool.sort();
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
    const Reading all = {1, 0, 0, 0, 0, 0, true};
    Pool pool(&segment, 1, 1);
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
