// Rotations, and the scan of opened units with the sketches of what the codes leave out. Compiled once per instruction
// set, as kernels.cpp.
#include "kernels.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "best.hpp"
#include "lanes.hpp"

namespace logt {
namespace {

// -------------------------------------------------------------------------------------------------- rotation

// The Hadamard transform of n = 2^k values, scaled to keep lengths.
void hadamard(float* x, size_t n) {
    size_t h = 1;
    for (; h < std::min(VECTOR, n); h *= 2)
        for (size_t i = 0; i < n; i += 2 * h)
            for (size_t j = i; j < i + h; ++j) {
                const float a = x[j], b = x[j + h];
                x[j] = a + b, x[j + h] = a - b;
            }
    for (; h < n; h *= 2)
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

// The query beside a sketch: q / step as int8, in the order of the fields.
struct Asked {
    Buffer<int8_t> q;
    float step;
    int32_t sum = 0;

    Asked(const float* z, size_t dim, size_t padded) : q(padded) {
        float most = 0;
        for (size_t i = 0; i < dim; ++i) most = std::max(most, std::fabs(z[i]));
        step = most > 0 ? most / 127 : 1;
        const float inverse = 1 / step;
        for (size_t i = 0; i < padded; ++i) {
            q[i] = static_cast<int8_t>(i < dim ? std::lrintf(z[i] * inverse) : 0);
            sum += q[i];
        }
    }
};

// sum_i field_i * q_i over `chunks` pieces of 64 bytes. Sums of 16 bits hold what one chunk gives: 15 * 127 * 4 at most.
template <int BITS>
int32_t product(const uint8_t* code, const int8_t* q, size_t chunks) {
    constexpr int FIELDS = 8 / BITS;
#if defined(__AVX512BW__)
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
    const float* c;
    const Asked& asked;
    Best& best;
    size_t seen = 0;

    static constexpr size_t AHEAD = 3;
    static constexpr float MIDDLE = ((1 << BITS) - 1) / 2.0f;

    bool hidden(size_t row) const { return codes.bias && codes.bias[row] == -INF; }

    void prefetch(size_t row) const {
        const uint8_t* code = sketches.code + row * sketches.bytes;
        for (size_t at = 0; at < sketches.bytes; at += 64) __builtin_prefetch(code + at);
        __builtin_prefetch(codes.U.unit + codes.U.at(row, 0));
        __builtin_prefetch(codes.U.weight + codes.U.at(row, 0));
        __builtin_prefetch(codes.scale + row);
        __builtin_prefetch(sketches.factor + row);
    }

    void visit(size_t row) {
        const int32_t dots = product<BITS>(sketches.code + row * sketches.bytes, asked.q.data, sketches.bytes / 64);
        float score = 0;
        for (size_t first = 0; first < codes.U.width; first += RANKS) {
            const size_t at = codes.U.at(row, first), stop = std::min(RANKS, codes.U.width - first);
            for (size_t l = 0; l < stop; ++l)
                score += static_cast<float>(codes.U.weight[at + l]) * c[codes.U.unit[at + l]];
        }
        score *= codes.scale[row];
        score += sketches.factor[row] * asked.step * (static_cast<float>(dots) - MIDDLE * static_cast<float>(asked.sum));
        if (codes.bias) score += codes.bias[row];
        ++seen;
        best.offer(score, row);
    }

    void everything() {
        for (size_t row = 0; row < codes.U.rows; ++row)
            if (!hidden(row)) visit(row);
    }

    // Units by falling c, `open` of them and then on until `wanted` rows are seen.
    void opened(const Lists& lists, size_t units, size_t open, size_t wanted) {
        Buffer<uint64_t> order(units), taken(codes.U.rows / 64 + 1);
        std::memset(taken.data, 0, (codes.U.rows / 64 + 1) * sizeof(uint64_t));
        int64_t longest = 0;
        for (size_t j = 0; j < units; ++j) longest = std::max(longest, lists.offsets[j + 1] - lists.offsets[j]);
        Buffer<uint32_t> rows(static_cast<size_t>(longest));
        for (size_t j = 0; j < units; ++j) order[j] = Best::pair(c[j], j);
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
            for (int64_t at = lists.offsets[unit]; at < lists.offsets[unit + 1]; ++at) {
                const uint32_t row = lists.rows[at];
                uint64_t& word = taken[row / 64];
                const uint64_t bit = uint64_t{1} << row % 64;
                if (word & bit || hidden(row)) continue;
                word |= bit;
                rows[count++] = row;
            }
            for (size_t i = 0; i < std::min(AHEAD, count); ++i) prefetch(rows[i]);
            for (size_t i = 0; i < count; ++i) {
                if (i + AHEAD < count) prefetch(rows[i + AHEAD]);
                visit(rows[i]);
            }
        }
    }
};

template <typename Unit, typename Weight, int BITS>
void scan_bits(const Codes<Unit, Weight>& codes, const Sketches& sketches, const Lists& lists, const float* c, size_t units,
               const float* z, size_t dim, size_t open, size_t least, size_t R, float* scores, int32_t* rows) {
    Asked asked(z, dim, sketches.bytes * 8 / BITS);
    Best best(R, codes.U.rows);
    Scan<Unit, Weight, BITS> scan{codes, sketches, c, asked, best};
    if (open >= units) scan.everything();
    else scan.opened(lists, units, open, std::max(least, R));
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
