// Reading candidates: codes, then signs, then all bits of what can still be among the best. With internal linkage, as all that is
// compiled per instruction set.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "bits.hpp"
#include "lanes.hpp"
#include "pool.hpp"
#include "query.hpp"
#include "units.hpp"

namespace logt {
namespace {

// A vector whose residual is read.
struct Waiting {
    uint32_t segment, position;
    float factor, estimate, bound;
    int32_t dot = 0;  // of the sign bits and their weights
};

// Vectors that wait for their residual, which is fetched into the cache meanwhile. First in, first out, in blocks: while one is
// read, the vectors after it are fetched.
template <size_t BLOCK, size_t BLOCKS>
struct Queue {
    static constexpr size_t SIZE = BLOCK * BLOCKS;
    alignas(64) float factor[SIZE] = {}, estimate[SIZE] = {}, bound[SIZE] = {};
    alignas(64) int32_t dot[SIZE] = {};
    uint32_t segment[SIZE] = {}, position[SIZE] = {};
    size_t first = 0, held = 0;  // first: of the block

    void add(const Waiting& v) {
        const size_t at = (first + held++) % SIZE;
        segment[at] = v.segment, position[at] = v.position;
        factor[at] = v.factor, estimate[at] = v.estimate, bound[at] = v.bound, dot[at] = v.dot;
    }
    Waiting at(size_t i) const { return {segment[i], position[i], factor[i], estimate[i], bound[i], dot[i]}; }
    bool full() const { return held == SIZE; }
    // Of the block: less than BLOCK only if no others follow.
    size_t count() const { return std::min(held, BLOCK); }
    void drop_block() { held -= count(), first = (first + BLOCK) % SIZE; }
};

struct Scan {
    const Codec& codec;
    const ListSegment* segments;
    Query& query;
    const ScanLimits& limits;
    Pool& pool;
    Counts& counts;
    bool complete;  // the query was compared with all units
    Missing missing{codec, query};
    static constexpr size_t PAIR = 2;
    Queue<LANES, 2> awaiting_signs;
    Queue<PAIR, 4> awaiting_low_bits;
    float code_reach;
    float sign_reach;
    alignas(64) float squares[LANES] = {};  // sums of the squares of the products of signs, as many for each instruction set
    size_t measured = 0;                    // vectors of these sums
    static constexpr float FAR = 1e38f;  // finite, also times the widest reach: residuals may be 0

    Scan(const Codec& codec, const ListSegment* segments, Query& query, const ScanLimits& limits, Pool& pool,
         Counts& counts, bool complete)
        : codec(codec), segments(segments), query(query), limits(limits), pool(pool), counts(counts), complete(complete),
          code_reach(usual_reach()),
          sign_reach(query.one_bit ? 0 : limits.everything ? FAR : limits.sign_reach * query.sign_error) {}

    float usual_reach() const { return limits.everything ? FAR : limits.code_reach * query.deviation; }

    void finish() {
        while (awaiting_signs.held) read_signs();
        while (awaiting_low_bits.held) read_low_bits();
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

    // Compares the query with the units that the codes of positions from..to-1 name.
    void measure_codes(const ListSegment& s, size_t from, size_t to) {
        if (complete) return;
        for (size_t e = 0; e + (s.starts ? 1 : 0) < s.entries; ++e)
            for (size_t p = from; p < to; ++p) missing.add(s.unit_of(e, p));
        missing.measure();
    }
    // Notes those of a single vector, which are measured with those of others. p: its position in the segment
    void need_units(const GraphNode& node, const ListSegment& s, uint32_t p) {
        if (complete) return;
        if (s.fits_node()) {
            for (size_t e = 0; e < s.entries; ++e) missing.add(node.unit[e]);
            return;
        }
        if (s.starts) missing.add(list_of(s, p));
        for (size_t e = 0; e + (s.starts ? 1 : 0) < s.entries; ++e) missing.add(s.unit_of(e, p));
    }

    static bool hidden(const ListSegment& s, size_t p) { return s.visible && !s.visible[s.row[p]]; }
    // Which of the LANES positions from p on are visible, a bit each.
    static uint32_t shown_from(const ListSegment& s, size_t p) {
        if (!s.visible) return (1u << LANES) - 1;
        uint32_t bits = 0;
        for (size_t l = 0; l < LANES; ++l) bits |= static_cast<uint32_t>(s.visible[s.row[p + l]] != 0) << l;
        return bits;
    }

    // Estimates positions from..to-1 by their codes. With lists, `first` is c of the unit whose list they are in.
    void decode(uint32_t segment, size_t from, size_t to, float first) {
        counts.decoded += static_cast<int64_t>(to - from);
        measure_codes(segments[segment], from, to);
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
            const uint32_t shown = shown_from(s, p);
            if (!shown) continue;
            LanesOf<GATHER> sum = {};
            if (listed) {
                sum = sixteen<GATHER>(s.weight + p);
                for (auto& part : sum.part) part *= first;
            }
            for (size_t e = listed; e < s.entries; ++e)
                sum.add(sixteen<GATHER>(s.weight + e * s.rows + p),
                        gather(query.c.data, unit + (e - listed) * s.rows + p));
            for (size_t i = 0; i < sum.PARTS; ++i) {
                const size_t at = p + i * GATHER;
                Part value = sum.part[i] * read<Part>(s.scale + at) + query.offset;
                if (s.bias) value += read<Part>(s.bias + at);
                std::memcpy(estimate + i * GATHER, &value, sizeof value);
                value += read<Part>(s.factor + at) * code_reach;
                std::memcpy(reach + i * GATHER, &value, sizeof value);
            }
            uint32_t wanted = not_below(reach, pool.threshold) & shown;
            if (to - p < LANES) wanted &= (1u << (to - p)) - 1;
            for (; wanted; wanted &= wanted - 1) {
                const size_t l = static_cast<size_t>(__builtin_ctz(wanted));
                const uint32_t at = static_cast<uint32_t>(p + l);
                wait_for_signs({segment, at, s.factor[at], estimate[l], reach[l]});
            }
        }
        for (; p < to; ++p) {
            if (hidden(s, p)) continue;
            const float value = estimate_one(s, p, first), bound = value + s.factor[p] * code_reach;
            if (bound >= pool.threshold) wait_for_signs({segment, static_cast<uint32_t>(p), s.factor[p], value, bound});
        }
    }

    // From now on vectors are neighbors in the graph. Where residuals are not the same in all directions, their products with
    // queries are further from 0 than the deviation predicts: so the part of the signs is measured, with what was read so far.
    void start_walk() {
        constexpr size_t ENOUGH = 32;
        code_reach = FAR;
        if (measured < ENOUGH) return;
        const float mean = std::accumulate(squares, squares + LANES, 0.0f) / static_cast<float>(measured);
        code_reach = limits.walk_reach * std::max(query.deviation, query.signs.step * std::sqrt(mean));
    }

    // A single vector. p: its position in the segment
    void decode_node(const GraphNode& node, uint32_t segment, uint32_t p) {
        const ListSegment& s = segments[segment];
        ++counts.decoded;
        if (hidden(s, p)) return;
        float estimate;
        if (s.fits_node()) {  // as estimate_one
            float sum = 0;
            for (size_t e = 0; e < s.entries; ++e) sum += static_cast<float>(node.weight[e]) * query.c[node.unit[e]];
            estimate = sum * node.scale + query.offset + node.bias;
        } else {
            estimate = estimate_one(s, p, s.starts ? query.c[list_of(s, p)] : 0);
        }
        const float bound = estimate + node.factor * code_reach;
        if (bound >= pool.threshold) wait_for_signs({segment, p, node.factor, estimate, bound});
    }

    // c of the unit whose list holds p; `list` is the list of an earlier position, and then of p.
    float first_of(const ListSegment& s, size_t p, size_t& list) {
        if (!s.starts) return 0;
        while (s.starts[list + 1] <= static_cast<int64_t>(p)) ++list;
        if (!complete) missing.add(list), missing.measure();
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
            sum += static_cast<float>(s.weight[e * s.rows + p]) * query.c[s.unit_of(e - listed, p)];
        return sum * s.scale[p] + query.offset + (s.bias ? s.bias[p] : 0);
    }

    static size_t residual_of(const ListSegment& s, uint32_t p) { return s.residual ? s.residual[p] : p; }
    const uint8_t* sign_bits(uint32_t segment, uint32_t p) const {
        const ListSegment& s = segments[segment];
        return s.sign_bits + residual_of(s, p) * codec.sign_bytes;
    }
    const uint8_t* low_bits(uint32_t segment, uint32_t p) const {
        const ListSegment& s = segments[segment];
        return s.low_bits + residual_of(s, p) * codec.low_bytes;
    }

    void wait_for_signs(const Waiting& vector) {
        fetch_bytes(sign_bits(vector.segment, vector.position), codec.sign_bytes);
        awaiting_signs.add(vector);
        if (awaiting_signs.full()) read_signs();
    }

    // The products of the residuals of a block with weights. Two at a time: they share the weights.
    template <typename Block>
    [[gnu::always_inline]] void multiply(const Block& block, const uint8_t* (Scan::*code)(uint32_t, uint32_t) const,
                                         const Buffer<int8_t>& weights, size_t bytes, int32_t* out) const {
        const size_t first = block.first, count = block.count();
        for (size_t i = 0; i < count; i += 2) {
            const size_t a = first + i, other = std::min(i + 1, count - 1), b = first + other;
            const uint8_t* codes[2] = {(this->*code)(block.segment[a], block.position[a]),
                                       (this->*code)(block.segment[b], block.position[b])};
            int32_t dots[2];
            bit_dots<2>(codes, weights.data, bytes, dots);
            out[i] = dots[0], out[other] = dots[other - i];
        }
    }

    // All products of a block first, and then what follows from them: the processor would wait for each one otherwise, as it
    // cannot guess whether a vector is kept.
    void read_signs() {
        const size_t count = awaiting_signs.count(), first = awaiting_signs.first;
        multiply(awaiting_signs, &Scan::sign_bits, query.signs.values, codec.sign_bytes, awaiting_signs.dot + first);
        counts.signs += static_cast<int64_t>(count);
        const float step = query.signs.step, half_sum = query.signs.half_sum, reach = sign_reach;
        for (size_t i = first; i < first + LANES; i += VECTOR) {
            const Vec factor = read<Vec>(awaiting_signs.factor + i), known = read<Vec>(awaiting_signs.bound + i);
            const Vec dot = __builtin_convertvector(read<Vectors<VECTOR>::Int>(awaiting_signs.dot + i), Vec) - half_sum;
            const Vec bound = read<Vec>(awaiting_signs.estimate + i) + factor * step * dot + factor * reach;
            if (count == LANES) write(squares + i - first, read<Vec>(squares + i - first) + dot * dot);
            write(awaiting_signs.bound + i, bound < known ? bound : known);
        }
        if (count == LANES) measured += LANES;
        uint32_t wanted = not_below(awaiting_signs.bound + first, pool.threshold) & ((1u << count) - 1);
        for (; wanted; wanted &= wanted - 1) use_signs(awaiting_signs.at(first + static_cast<size_t>(__builtin_ctz(wanted))));
        awaiting_signs.drop_block();
    }

    // The estimate of a vector whose sign bits were read.
    float with_signs(const Waiting& v) const {
        return v.estimate + v.factor * query.signs.step * (static_cast<float>(v.dot) - query.signs.half_sum);
    }

    // Goes on with a vector whose sign bits were read, if it can still be among the best.
    [[gnu::always_inline]] void use_signs(const Waiting& vector) {
        if (!(vector.bound >= pool.threshold)) return;
        if (query.one_bit) pool.offer(vector.bound, with_signs(vector), vector.segment, vector.position);
        else wait_for_low_bits(vector);
    }

    [[gnu::always_inline]] void wait_for_low_bits(const Waiting& vector) {
        fetch_bytes(low_bits(vector.segment, vector.position), codec.low_bytes);
        awaiting_low_bits.add(vector);
        if (awaiting_low_bits.full()) read_low_bits();
    }

    void read_low_bits() {
        int32_t dots[PAIR];
        multiply(awaiting_low_bits, &Scan::low_bits, query.low_bits.values, codec.low_bytes, dots);
        counts.low_bits += static_cast<int64_t>(awaiting_low_bits.count());
        for (size_t i = 0; i < awaiting_low_bits.count(); ++i) {
            const auto [segment, p, factor, estimate, bound, dot] = awaiting_low_bits.at(awaiting_low_bits.first + i);
            const float of_signs = query.uniform ? static_cast<float>(dot) - query.all_signs.half_sum : sign_sum(segment, p);
            const float of_low_bits = static_cast<float>(dots[i]) - query.low_bits.half_sum;
            pool.offer(bound, with_all_bits(factor, estimate, of_signs + of_low_bits), segment, p);
        }
        awaiting_low_bits.drop_block();
    }

    const Weights& sign_weights() const { return query.one_bit ? query.signs : query.all_signs; }

    // Half of the sum of the weights of the bits that are set, less half of that of the others.
    static float sum_of_bits(const uint8_t* code, size_t bytes, const Buffer<int8_t>& weights, float half_sum) {
        const uint8_t* codes[1] = {code};
        int32_t dot[1];
        bit_dots<1>(codes, weights.data, bytes, dot);
        return static_cast<float>(dot[0]) - half_sum;
    }
    float sign_sum(uint32_t segment, uint32_t p) const {
        return sum_of_bits(sign_bits(segment, p), codec.sign_bytes, sign_weights().values, sign_weights().half_sum);
    }
    float sum_of_all(uint32_t segment, uint32_t p) const {
        if (query.one_bit) return sign_sum(segment, p);
        return sign_sum(segment, p) + sum_of_bits(low_bits(segment, p), codec.low_bytes, query.low_bits.values, query.low_bits.half_sum);
    }
    // sum: that of all bits
    float with_all_bits(float factor, float estimate, float sum) const {
        return estimate + factor * sign_weights().step * sum;
    }

    // What rounding the query to int8 leaves out of the score of a vector, and what its refinement adds.
    float refined_part(uint32_t segment, uint32_t p, size_t first) {
        const ListSegment& s = segments[segment];
        if (!s.refinement) return 0;
        float sum = s.starts ? static_cast<float>(s.weight[p]) * fine_of(first) : 0;
        const size_t listed = s.starts ? 1 : 0;
        for (size_t e = listed; e < s.entries; ++e)
            sum += static_cast<float>(s.weight[e * s.rows + p]) * fine_of(s.unit_of(e - listed, p));
        sum *= s.scale[p];
        const Weights& of_signs = sign_weights();
        float bits = sum_of_bits(sign_bits(segment, p), codec.sign_bytes, of_signs.fine, of_signs.fine_half_sum);
        if (!query.one_bit)
            bits += sum_of_bits(low_bits(segment, p), codec.low_bytes, query.low_bits.fine, query.low_bits.fine_half_sum);
        sum += s.factor[p] * (of_signs.step / Weights::FINE) * bits;
        const size_t row = s.row[p];
        return sum + s.refinement_scale[row] * query.product(s.refinement + row * codec.dim, codec.dim);
    }

    float fine_of(size_t unit) {
        float& value = query.fine[unit];
        if (query.refined.insert(unit)) {
            const uint8_t* code[1] = {codec.book + unit * codec.book_bytes};
            const int8_t* weights[1] = {query.book.fine.data};
            int32_t dot[1][1];
            nibble_dots<1, 1>(code, weights, codec.book_bytes, dot);
            const float step = query.book.step / Weights::FINE;
            value = codec.book_scale[unit] * step * (static_cast<float>(dot[0][0]) - 15 * query.book.fine_half_sum);
        }
        return value;
    }
};

}  // namespace
}  // namespace logt
