// Rotations, and the scan of opened units with the sketches of what the codes leave out. Compiled once per instruction
// set, as kernels.cpp.
#include "kernels.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "best.hpp"
#include "lanes.hpp"

namespace logt {
namespace {

// -------------------------------------------------------------------------------------------------- rotation

// Sums and differences of values H apart, in one register.
template <size_t H, size_t... I>
inline Vec crossed(Vec v, std::index_sequence<I...>) {
    const Vec other = __builtin_shufflevector(v, v, static_cast<int>(I ^ H)...);
    const Vec sign = {(I & H ? -1.0f : 1.0f)...};
    return other + sign * v;
}

// All of them with H below VECTOR.
template <size_t H = 1>
inline Vec crossed(Vec v) {
    if constexpr (H == VECTOR) return v;
    else return crossed<2 * H>(crossed<H>(v, std::make_index_sequence<VECTOR>()));
}

// The Hadamard transform of n = 2^k values, scaled to keep lengths.
void hadamard(float* x, size_t n) {
    for (size_t h = 1; n < VECTOR && h < n; h *= 2)
        for (size_t i = 0; i < n; i += 2 * h)
            for (size_t j = i; j < i + h; ++j) {
                const float a = x[j], b = x[j + h];
                x[j] = a + b, x[j + h] = a - b;
            }
    for (size_t i = 0; n >= VECTOR && i < n; i += VECTOR) {
        const Vec v = crossed(read<Vec>(x + i));
        std::memcpy(x + i, &v, sizeof v);
    }
    for (size_t h = VECTOR; h < n; h *= 2)
        for (size_t i = 0; i < n; i += 2 * h)
            for (size_t j = i; j < i + h; j += VECTOR) {
                const Vec a = read<Vec>(x + j), b = read<Vec>(x + j + h);
                const Vec sum = a + b, difference = a - b;
                std::memcpy(x + j, &sum, sizeof sum);
                std::memcpy(x + j + h, &difference, sizeof difference);
            }
    const float scale = 1.0f / std::sqrt(static_cast<float>(n));
    for (size_t i = 0; i < n; ++i) x[i] *= scale;
}

void rotate(float* X, size_t rows, size_t dim, const float* signs, size_t rounds, bool back) {
    size_t n = 1;
    while (2 * n <= dim) n *= 2;
    for (float* x = X; x < X + rows * dim; x += dim)
        for (size_t r = 0; r < rounds; ++r) {
            const size_t round = back ? rounds - 1 - r : r;
            float* window = x + (round % 2 ? dim - n : 0);
            const float* sign = signs + round * dim;
            if (back) hadamard(window, n);
            for (size_t i = 0; i < dim; ++i) x[i] *= sign[i];
            if (!back) hadamard(window, n);
        }
}

// ---------------------------------------------------------------------------------------------------- sketches

// The query beside a sketch: q / step as int8, in the order of the fields, of which the first `head` stand apart.
struct Asked {
    Buffer<int8_t> q;
    size_t head;
    float step, head_sum = 0, tail_sum = 0, head_energy = 0, tail_energy = 0;

    Asked(const float* z, size_t dim, size_t head, size_t padded) : q(padded), head(head) {
        float most = 0;
        for (size_t i = 0; i < dim; ++i) most = std::max(most, std::fabs(z[i]));
        step = most > 1e-30f ? most / 127 : 1;  // a query of next to nothing is one of nothing
        const float inverse = 1 / step;
        for (size_t i = 0; i < dim; ++i) {
            const float value = z[i] * inverse;
            q[i] = static_cast<int8_t>(static_cast<int32_t>(value + (value < 0 ? -0.5f : 0.5f)));
        }
        for (size_t i = dim; i < padded; ++i) q[i] = 0;
        count(0, head, head_sum, head_energy);
        count(head, padded, tail_sum, tail_energy);
    }

    void count(size_t from, size_t to, float& sum, float& energy) {
        int32_t whole = 0, squares = 0;
        for (size_t i = from; i < to; ++i) whole += q[i], squares += q[i] * q[i];
        sum = static_cast<float>(whole);
        energy = static_cast<float>(squares);
    }
};

// sum_i field_i * q_i over `chunks` pieces of 64 bytes. Sums of 16 bits hold what one chunk gives: 15 * 127 * 4 at most.
template <int BITS>
inline __attribute__((always_inline)) int32_t product(const uint8_t* code, const int8_t* q, size_t chunks) {
    constexpr int FIELDS = 8 / BITS;
#if defined(__AVX512VNNI__)
    // Fields are multiplied where they stand, each kind into sums of its own, which are shifted down at the end.
    return [&]<size_t... F>(std::index_sequence<F...>) {
        __m512i sum[FIELDS] = {(static_cast<void>(F), _mm512_setzero_si512())...};
        const __m512i mask[FIELDS] = {_mm512_set1_epi8(static_cast<char>(((1 << BITS) - 1) << (BITS * F)))...};
        for (size_t c = 0; c < chunks; ++c, code += 64, q += 64 * FIELDS) {
            const __m512i bytes = read<__m512i>(code);
            ((sum[F] = _mm512_dpbusd_epi32(sum[F], _mm512_and_si512(bytes, mask[F]), read<__m512i>(q + 64 * F))), ...);
        }
        __m512i total = _mm512_setzero_si512();
        ((total = _mm512_add_epi32(total, _mm512_srai_epi32(sum[F], BITS * F))), ...);
        return _mm512_reduce_add_epi32(total);
    }(std::make_index_sequence<FIELDS>());
#elif defined(__AVX512BW__)
    const __m512i mask = _mm512_set1_epi8((1 << BITS) - 1), ones = _mm512_set1_epi16(1);
    __m512i total = _mm512_setzero_si512();
    for (size_t c = 0; c < chunks; ++c, code += 64, q += 64 * FIELDS) {
        const __m512i bytes = read<__m512i>(code);
        __m512i sum = _mm512_maddubs_epi16(_mm512_and_si512(bytes, mask), read<__m512i>(q));
        for (int f = 1; f < FIELDS; ++f) {
            const __m512i field = _mm512_and_si512(_mm512_srli_epi16(bytes, static_cast<unsigned>(BITS * f)), mask);
            sum = _mm512_add_epi16(sum, _mm512_maddubs_epi16(field, read<__m512i>(q + 64 * f)));
        }
        total = _mm512_add_epi32(total, _mm512_madd_epi16(sum, ones));
    }
    return _mm512_reduce_add_epi32(total);
#elif defined(__AVX2__)
    const __m256i mask = _mm256_set1_epi8((1 << BITS) - 1), ones = _mm256_set1_epi16(1);
    __m256i total = _mm256_setzero_si256();
    for (size_t c = 0; c < chunks; ++c, code += 64, q += 64 * FIELDS)
        for (size_t half = 0; half < 64; half += 32) {
            const __m256i bytes = read<__m256i>(code + half);
            __m256i sum = _mm256_maddubs_epi16(_mm256_and_si256(bytes, mask), read<__m256i>(q + half));
            for (int f = 1; f < FIELDS; ++f) {
                const __m256i field = _mm256_and_si256(_mm256_srli_epi16(bytes, BITS * f), mask);
                sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(field, read<__m256i>(q + 64 * f + half)));
            }
            total = _mm256_add_epi32(total, _mm256_madd_epi16(sum, ones));
        }
    alignas(32) int32_t lane[8];
    std::memcpy(lane, &total, sizeof lane);
    return lane[0] + lane[1] + lane[2] + lane[3] + lane[4] + lane[5] + lane[6] + lane[7];
#else
    int32_t total = 0;
    for (size_t c = 0; c < chunks; ++c, code += 64, q += 64 * FIELDS)
        for (int f = 0; f < FIELDS; ++f)
            for (size_t i = 0; i < 64; ++i) total += (code[i] >> (BITS * f) & ((1 << BITS) - 1)) * q[64 * f + i];
    return total;
#endif
}

template <typename Unit, typename Weight, int BITS>
struct Scan {
    const Codes<Unit, Weight>& codes;
    const Sketches& sketches;
    const Lists& lists;
    const float* c;
    const Asked& asked;
    Best& best;
    float tail_ratio, tail_reach;  // what a tail adds to what its head gives, and by how much more it may exceed that
    size_t seen = 0;

    Scan(const Codes<Unit, Weight>& codes, const Sketches& sketches, const Lists& lists, const float* c,
         const Asked& asked, Best& best)
        : codes(codes), sketches(sketches), lists(lists), c(c), asked(asked), best(best),
          tail_ratio(asked.tail_energy / std::max(asked.head_energy, 1.0f)),
          tail_reach(DEVIATIONS * LEVEL * std::sqrt(asked.tail_energy)) {}

    static constexpr size_t BLOCK = 32;  // rows whose heads are read before anything is decided about them
    static constexpr float MIDDLE = ((1 << BITS) - 1) / 2.0f;
    static constexpr float LEVEL = BITS == 1 ? 0.5f : BITS == 2 ? 0.943f : 2.97f;  // root mean square of field - MIDDLE
    static constexpr float DEVIATIONS = 1.5;  // a row is left out by its head if its tail would have to be so exceptional

    bool hidden(size_t place) const { return codes.bias && codes.bias[lists.row[place]] == -INF; }

    const uint8_t* head(size_t place) const { return sketches.head + place * sketches.head_bytes; }
    const uint8_t* tail(size_t place) const { return sketches.tail + place * sketches.tail_bytes; }

    void prefetch(size_t place, bool scattered) const {
        for (size_t at = 0; at < sketches.head_bytes; at += 64) __builtin_prefetch(head(place) + at);
        if (!scattered) return;
        __builtin_prefetch(codes.U.unit + codes.U.at(place, 0));
        __builtin_prefetch(codes.U.weight + codes.U.at(place, 0));
        __builtin_prefetch(codes.scale + place);
        __builtin_prefetch(sketches.factor + place);
        __builtin_prefetch(lists.row + place);
    }

    float by_code(size_t place) const {
        float sum = 0;
        if (codes.U.width <= RANKS) {
            const Unit* unit = codes.U.unit + place * codes.U.width;
            const Weight* weight = codes.U.weight + place * codes.U.width;
            for (size_t l = 0; l < codes.U.width; ++l) sum += static_cast<float>(weight[l]) * c[unit[l]];
            return sum * codes.scale[place];
        }
        for (size_t first = 0; first < codes.U.width; first += RANKS) {
            const size_t at = codes.U.at(place, first), stop = std::min(RANKS, codes.U.width - first);
            for (size_t l = 0; l < stop; ++l)
                sum += static_cast<float>(codes.U.weight[at + l]) * c[codes.U.unit[at + l]];
        }
        return sum * codes.scale[place];
    }

    // `scattered`: places do not follow each other. With `all`, no tail is left unread.
    void visit(const uint32_t* places, size_t count, bool scattered, bool all) {
        const float* factors = sketches.factor;
        const int8_t* q = asked.q.data;
        const size_t head_chunks = sketches.head_bytes / 64, tail_chunks = sketches.tail_bytes / 64;
        const float step = asked.step, head_middle = MIDDLE * asked.head_sum, tail_middle = MIDDLE * asked.tail_sum;
        float score[BLOCK], reach[BLOCK];
        int32_t dots[BLOCK];
        for (size_t i = 0; i < std::min(BLOCK, count); ++i) prefetch(places[i], scattered);
        for (size_t start = 0; start < count; start += BLOCK, places += BLOCK) {
            const size_t n = std::min(BLOCK, count - start), next = std::min(BLOCK, count - start - n);
            for (size_t i = 0; i < next; ++i) prefetch(places[n + i], scattered);
            for (size_t i = 0; i < n; ++i) dots[i] = product<BITS>(head(places[i]), q, head_chunks);
            for (size_t i = 0; i < n; ++i) {
                const float factor = step * factors[places[i]];
                const float half = factor * (static_cast<float>(dots[i]) - head_middle);
                score[i] = by_code(places[i]) + half;
                if (codes.bias) score[i] += codes.bias[lists.row[places[i]]];
                reach[i] = score[i] + std::max(half, 0.0f) * tail_ratio + factor * tail_reach;
            }
            for (size_t i = 0; i < n; ++i)
                if (all || reach[i] >= best.threshold)
                    for (size_t at = 0; at < tail_chunks; ++at) __builtin_prefetch(tail(places[i]) + 64 * at);
            for (size_t i = 0; i < n; ++i) {
                if (tail_chunks) {
                    if (!all && reach[i] < best.threshold) continue;
                    const int32_t rest = product<BITS>(tail(places[i]), q + asked.head, tail_chunks);
                    score[i] += step * factors[places[i]] * (static_cast<float>(rest) - tail_middle);
                }
                best.offer(score[i], lists.row[places[i]]);
            }
        }
        seen += count;
    }

    void everything() {
        constexpr size_t TOGETHER = 4096;
        Buffer<uint32_t> places(TOGETHER);
        for (size_t start = 0; start < codes.U.rows; start += TOGETHER) {
            size_t count = 0;
            for (size_t place = start; place < std::min(start + TOGETHER, codes.U.rows); ++place)
                if (!hidden(place)) places[count++] = static_cast<uint32_t>(place);
            visit(places.data, count, false, true);
        }
    }

    // Units by falling c, `open` of them and then on until `wanted` rows are seen.
    void opened(size_t units, size_t open, size_t wanted) {
        Buffer<uint64_t> order(units), taken(codes.U.rows / 64 + 1);
        std::memset(taken.data, 0, (codes.U.rows / 64 + 1) * sizeof(uint64_t));
        int64_t longest = 0;
        for (size_t j = 0; j < units; ++j) {
            order[j] = Best::pair(c[j], j);
            longest = std::max({longest, lists.starts[j + 1] - lists.starts[j], lists.offsets[j + 1] - lists.offsets[j]});
        }
        Buffer<uint32_t> places(static_cast<size_t>(longest));
        const auto falling = [](uint64_t a, uint64_t b) { return a > b; };
        size_t sorted = 0;
        for (size_t u = 0; u < units && (u < open || seen < wanted); ++u) {
            if (u == sorted) {
                sorted = u < open ? std::min(open, units) : units;
                if (sorted < units) std::nth_element(order.data + u, order.data + sorted, order.data + units, falling);
                std::sort(order.data + u, order.data + sorted, falling);
            }
            const size_t unit = Best::row(order[u]);
            size_t count = 0;
            const auto take = [&](size_t place) {
                uint64_t& word = taken[place / 64];
                const uint64_t bit = uint64_t{1} << place % 64;
                if (word & bit || hidden(place)) return;
                word |= bit;
                places[count++] = static_cast<uint32_t>(place);
            };
            for (int64_t at = lists.starts[unit]; at < lists.starts[unit + 1]; ++at) take(static_cast<size_t>(at));
            visit(places.data, count, false, false);
            count = 0;
            for (int64_t at = lists.offsets[unit]; at < lists.offsets[unit + 1]; ++at) take(lists.further[at]);
            visit(places.data, count, true, false);
        }
    }
};

template <typename Unit, typename Weight, int BITS>
void scan_bits(const Codes<Unit, Weight>& codes, const Sketches& sketches, const Lists& lists, const float* c, size_t units,
               const float* z, size_t dim, size_t open, size_t least, size_t R, float* scores, int32_t* rows) {
    Asked asked(z, dim, sketches.head_bytes * 8 / BITS, (sketches.head_bytes + sketches.tail_bytes) * 8 / BITS);
    Best best(R, codes.U.rows);
    Scan<Unit, Weight, BITS> scan(codes, sketches, lists, c, asked, best);
    if (open >= units) scan.everything();
    else scan.opened(units, open, std::max(least, R));
    best.sort();
    best.write(scores, rows);
}

template <typename Unit, typename Weight>
void scan(const Codes<Unit, Weight>& codes, const Sketches& sketches, const Lists& lists, const float* c, size_t units,
          const float* z, size_t dim, size_t open, size_t least, size_t R, float* scores, int32_t* rows) {
    const auto with = sketches.bits == 1   ? scan_bits<Unit, Weight, 1>
                      : sketches.bits == 2 ? scan_bits<Unit, Weight, 2>
                                           : scan_bits<Unit, Weight, 4>;
    with(codes, sketches, lists, c, units, z, dim, open, least, R, scores, rows);
}

}  // namespace

const SketchTable LOGT_SKETCHES = {
    rotate,
    scan<uint16_t, int8_t>,
    scan<uint16_t, float>,
    scan<uint32_t, int8_t>,
    scan<uint32_t, float>,
};

}  // namespace logt
