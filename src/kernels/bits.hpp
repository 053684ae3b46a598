// Inner products of packed bits, and of 4-bit numbers, with int8 weights. Included by copies for each instruction set.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>

#include "best.hpp"
#include "lanes.hpp"
#include "lists.hpp"

#if defined(__ARM_NEON)
#include <arm_neon.h>
#endif

namespace logt {
namespace {

#if defined(__AVX512BW__)
constexpr size_t WIDTH = 64;  // bytes of code in a register; a multiple of CHUNK
#elif defined(__AVX2__)
constexpr size_t WIDTH = 32;
#else
constexpr size_t WIDTH = 16;
#endif

// Weights of the fields of a code, as int8 in the order in which a register of code meets them: for each group of
// WIDTH bytes, WIDTH weights of the first field of each byte, then of the second, and so on.
struct Weights {
    Buffer<int8_t> values;
    float step = 1;      // weight = step * value
    float half_sum = 0;  // half of the sum of the values
    Buffer<int8_t> fine;       // what that leaves of a weight, in steps of step / FINE
    float fine_half_sum = 0;
    static constexpr float FINE = 254;

    Weights() : values(0), fine(0) {}
    // The same values in another step, without what they leave.
    Weights(const Weights& other, size_t count, float step) : values(count), step(step), half_sum(other.half_sum), fine(0) {
        std::copy_n(other.values.data, count, values.data);
    }
    // `fields` per byte (8 bits, 2 of 4 bits, or one); weight[i]: that of logical field i < count
    Weights(size_t bytes, size_t fields, const float* weight, size_t count, float largest)
        : values((bytes + WIDTH - 1) / WIDTH * WIDTH * fields), fine((bytes + WIDTH - 1) / WIDTH * WIDTH * fields) {
        step = largest > 127 * std::numeric_limits<float>::min() ? largest / 127 : 1;  // smaller weights count as 0
        const float inverse = 1 / step;
        Int sums = {}, fine_sums = {};
        int8_t *out = values.data, *more = fine.data;
        for (size_t group = 0; group < bytes; group += WIDTH)
            for (size_t f = 0; f < fields; ++f)
                for (size_t b = 0; b < WIDTH; b += CHUNK, out += CHUNK, more += CHUNK) {
                    const size_t first = ((group + b) / CHUNK * fields + f) * CHUNK;
                    const size_t there = first < count ? std::min(CHUNK, count - first) : 0;
                    float some[CHUNK] = {};  // where the last ones are fewer
                    if (there < CHUNK) std::copy_n(weight + (there ? first : 0), there, some);
                    const Lanes all = sixteen<VECTOR>(there < CHUNK ? some : weight + first);
                    Int coarse[Lanes::PARTS], finer[Lanes::PARTS];
                    for (size_t i = 0; i < Lanes::PARTS; ++i) {
                        const Vec v = all.part[i] * inverse;
                        coarse[i] = rounded(v);
                        finer[i] = rounded((v - __builtin_convertvector(coarse[i], Vec)) * FINE);
                        sums += coarse[i];
                        fine_sums += finer[i];
                    }
                    to_bytes(coarse, out);
                    to_bytes(finer, more);
                }
        int32_t sum = 0, fine_sum = 0;
        for (size_t i = 0; i < VECTOR; ++i) sum += sums[i], fine_sum += fine_sums[i];
        half_sum = static_cast<float>(sum) * 0.5f;
        fine_half_sum = static_cast<float>(fine_sum) * 0.5f;
    }

  private:
    using Int = Vectors<VECTOR>::Int;

    static Int rounded(Vec v) {  // to the nearest integer, halves away from 0
        const Int sign = (Int)v & INT32_MIN;
        return __builtin_convertvector(v + (Vec)(sign | (Int)(Vec{} + 0.5f)), Int);
    }
    static void to_bytes(const Int (&v)[Lanes::PARTS], int8_t* out) {
#if defined(__ARM_NEON) && defined(__aarch64__)
        const auto half = [&](size_t i) {
            return vcombine_s16(vmovn_s32((int32x4_t)v[i]), vmovn_s32((int32x4_t)v[i + 1]));
        };
        vst1q_s8(out, vcombine_s8(vmovn_s16(half(0)), vmovn_s16(half(2))));
#else
        typedef int32_t Whole __attribute__((vector_size(4 * LANES)));
        typedef int8_t Bytes __attribute__((vector_size(LANES)));
        const Bytes bytes = __builtin_convertvector(read<Whole>(v), Bytes);
        std::memcpy(out, &bytes, sizeof bytes);
#endif
    }
};

#if defined(__AVX512BW__)
// The bytes from..from+63 of a code of `bytes` bytes, 0 after its end
inline __m512i group_of(const uint8_t* code, size_t from, size_t bytes) {
    if (from + WIDTH <= bytes) return read<__m512i>(code + from);
    return _mm512_maskz_loadu_epi8((1ull << (bytes - from)) - 1, code + from);
}
inline __m512i multiply_add(__m512i sum, __m512i codes, __m512i weights) {
#if defined(__AVX512VNNI__)
    return _mm512_dpbusd_epi32(sum, codes, weights);
#else
    return _mm512_add_epi32(sum, _mm512_madd_epi16(_mm512_maddubs_epi16(codes, weights), _mm512_set1_epi16(1)));
#endif
}
// The sum of each of N registers of integers. Two or four share most of the additions.
template <size_t N>
[[gnu::always_inline]] inline void totals(const __m512i (&v)[N], int32_t* out) {
    const auto half = [](__m512i x) { return _mm256_add_epi32(_mm512_castsi512_si256(x), _mm512_extracti64x4_epi64(x, 1)); };
    const auto quarter = [](__m256i x) { return _mm_add_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1)); };
    size_t n = 0;
    for (; n + 4 <= N; n += 4) {
        const __m256i ab = _mm256_hadd_epi32(half(v[n]), half(v[n + 1]));
        const __m256i cd = _mm256_hadd_epi32(half(v[n + 2]), half(v[n + 3]));
        write(out + n, quarter(_mm256_hadd_epi32(ab, cd)));
    }
    for (; n + 2 <= N; n += 2) {
        const __m128i both = quarter(_mm256_hadd_epi32(half(v[n]), half(v[n + 1])));
        write(out + n, _mm_cvtsi128_si64(_mm_hadd_epi32(both, both)));
    }
    for (; n < N; ++n) out[n] = _mm512_reduce_add_epi32(v[n]);
}
#elif defined(__AVX2__)
inline __m256i group_of(const uint8_t* code, size_t from, size_t bytes) {
    if (from + WIDTH <= bytes) return read<__m256i>(code + from);
    return _mm256_zextsi128_si256(read<__m128i>(code + from));
}
inline int32_t total(__m256i v) {
    alignas(32) int32_t lane[8];
    std::memcpy(lane, &v, sizeof lane);
    return lane[0] + lane[1] + lane[2] + lane[3] + lane[4] + lane[5] + lane[6] + lane[7];
}
#endif

// out[n] = sum of the weights of the bits that are set in code[n], for N codes of `bytes` bytes (a multiple of CHUNK)
template <size_t N>
[[gnu::always_inline]] inline void bit_dots(const uint8_t* const (&code)[N], const int8_t* weights, size_t bytes, int32_t (&out)[N]) {
#if defined(__AVX512BW__)
    __m512i all[N];
    // A bit is multiplied where it stands in its half of a byte, as 1 << f; the sums of each f are shifted down at the end.
    __m512i sum[N][4] = {};
    for (size_t at = 0; at < bytes; at += WIDTH, weights += 8 * WIDTH) {
        __m512i x[N], y[N];
        for (size_t n = 0; n < N; ++n) x[n] = group_of(code[n], at, bytes), y[n] = _mm512_srli_epi16(x[n], 4);
        for (int f = 0; f < 4; ++f) {
            const __m512i mask = _mm512_set1_epi8(static_cast<char>(1 << f));
            const __m512i w = read<__m512i>(weights + f * WIDTH), v = read<__m512i>(weights + (f + 4) * WIDTH);
            for (size_t n = 0; n < N; ++n) sum[n][f] = multiply_add(sum[n][f], _mm512_and_si512(x[n], mask), w);
            for (size_t n = 0; n < N; ++n) sum[n][f] = multiply_add(sum[n][f], _mm512_and_si512(y[n], mask), v);
        }
    }
    for (size_t n = 0; n < N; ++n) {
        const __m512i even = _mm512_add_epi32(sum[n][0], _mm512_srai_epi32(sum[n][2], 2));
        const __m512i odd = _mm512_add_epi32(sum[n][1], _mm512_srai_epi32(sum[n][3], 2));
        all[n] = _mm512_add_epi32(even, _mm512_srai_epi32(odd, 1));
    }
    totals(all, out);
#elif defined(__AVX2__)
    const __m256i one = _mm256_set1_epi8(1), ones = _mm256_set1_epi16(1);
    __m256i sum[N] = {};
    for (size_t at = 0; at < bytes; at += WIDTH, weights += 8 * WIDTH)
        for (size_t n = 0; n < N; ++n) {
            const __m256i x = group_of(code[n], at, bytes);
            __m256i part = _mm256_maddubs_epi16(_mm256_and_si256(x, one), read<__m256i>(weights));
            for (int f = 1; f < 8; ++f) {  // sums of 16 bits hold 8 * 2 * 127
                const __m256i bit = _mm256_and_si256(_mm256_srli_epi16(x, f), one);
                part = _mm256_add_epi16(part, _mm256_maddubs_epi16(bit, read<__m256i>(weights + f * WIDTH)));
            }
            sum[n] = _mm256_add_epi32(sum[n], _mm256_madd_epi16(part, ones));
        }
    for (size_t n = 0; n < N; ++n) out[n] = total(sum[n]);
#elif defined(__ARM_FEATURE_DOTPROD)
    int32x4_t sum[N][4] = {};  // as with AVX-512
    for (size_t at = 0; at < bytes; at += WIDTH, weights += 8 * WIDTH) {
        uint8x16_t x[N], y[N];
        for (size_t n = 0; n < N; ++n) x[n] = vld1q_u8(code[n] + at), y[n] = vshrq_n_u8(x[n], 4);
        for (int f = 0; f < 4; ++f) {
            const uint8x16_t mask = vdupq_n_u8(static_cast<uint8_t>(1 << f));
            const int8x16_t w = vld1q_s8(weights + f * WIDTH), v = vld1q_s8(weights + (f + 4) * WIDTH);
            for (size_t n = 0; n < N; ++n)
                sum[n][f] = vdotq_s32(sum[n][f], vreinterpretq_s8_u8(vandq_u8(x[n], mask)), w);
            for (size_t n = 0; n < N; ++n)
                sum[n][f] = vdotq_s32(sum[n][f], vreinterpretq_s8_u8(vandq_u8(y[n], mask)), v);
        }
    }
    for (size_t n = 0; n < N; ++n) {
        const int32x4_t even = vsraq_n_s32(sum[n][0], sum[n][2], 2), odd = vsraq_n_s32(sum[n][1], sum[n][3], 2);
        out[n] = vaddvq_s32(vsraq_n_s32(even, odd, 1));
    }
#elif defined(__ARM_NEON) && defined(__aarch64__)
    constexpr size_t SAFE = 8;  // groups whose sums fit into 16 bits: 8 * 8 * 2 * 127
    int32x4_t sum[N] = {};
    for (size_t at = 0; at < bytes; at += SAFE * WIDTH) {
        int16x8_t part[N] = {};
        for (size_t g = at; g < std::min(bytes, at + SAFE * WIDTH); g += WIDTH, weights += 8 * WIDTH)
            for (int f = 0; f < 8; ++f) {
                const int8x16_t w = vld1q_s8(weights + f * WIDTH);
                const uint8x16_t mask = vdupq_n_u8(static_cast<uint8_t>(1 << f));
                for (size_t n = 0; n < N; ++n) {
                    const uint8x16_t set = vtstq_u8(vld1q_u8(code[n] + g), mask);
                    part[n] = vpadalq_s8(part[n], vandq_s8(w, vreinterpretq_s8_u8(set)));
                }
            }
        for (size_t n = 0; n < N; ++n) sum[n] = vpadalq_s16(sum[n], part[n]);
    }
    for (size_t n = 0; n < N; ++n) out[n] = vaddvq_s32(sum[n]);
#else
    for (size_t n = 0; n < N; ++n) {
        int32_t sum = 0;
        const int8_t* w = weights;
        for (size_t at = 0; at < bytes; at += WIDTH)
            for (int f = 0; f < 8; ++f, w += WIDTH)
                for (size_t b = 0; b < WIDTH; ++b) sum += (code[n][at + b] >> f & 1) * w[b];
        out[n] = sum;
    }
#endif
}

// out[m][n] = sum of weight * field over the 4-bit fields of a code, for M codes and N lists of weights. Several sums at
// once: one alone would wait for each of its additions.
template <size_t M, size_t N>
[[gnu::always_inline]] inline void nibble_dots(const uint8_t* const (&code)[M], const int8_t* const (&weights)[N], size_t bytes,
                        int32_t (&out)[M][N]) {
#if defined(__AVX512BW__)
    const __m512i low = _mm512_set1_epi8(15);
#if defined(__AVX512VNNI__)
    constexpr unsigned UP = 4;  // the upper number is multiplied where it stands, and its sum shifted down at the end
    const auto upper = [](__m512i x) { return _mm512_and_si512(x, _mm512_set1_epi8(static_cast<char>(0xF0))); };
#else
    constexpr unsigned UP = 0;
    const auto upper = [low](__m512i x) { return _mm512_and_si512(_mm512_srli_epi16(x, 4), low); };
#endif
    __m512i sum[M][N] = {}, more[M][N] = {};
    for (size_t at = 0, w = 0; at < bytes; at += WIDTH, w += 2 * WIDTH) {
        __m512i a[M], b[M];
        for (size_t m = 0; m < M; ++m) {
            const __m512i x = group_of(code[m], at, bytes);
            a[m] = _mm512_and_si512(x, low), b[m] = upper(x);
        }
        for (size_t n = 0; n < N; ++n) {
            const __m512i u = read<__m512i>(weights[n] + w), v = read<__m512i>(weights[n] + w + WIDTH);
            for (size_t m = 0; m < M; ++m) {
                sum[m][n] = multiply_add(sum[m][n], a[m], u);
                more[m][n] = multiply_add(more[m][n], b[m], v);
            }
        }
    }
    __m512i all[M * N];
    for (size_t m = 0; m < M; ++m)
        for (size_t n = 0; n < N; ++n) all[m * N + n] = _mm512_add_epi32(sum[m][n], _mm512_srai_epi32(more[m][n], UP));
    int32_t sums[M * N];
    totals(all, sums);
    std::memcpy(out, sums, sizeof sums);
#elif defined(__AVX2__)
    const __m256i low = _mm256_set1_epi8(15), ones = _mm256_set1_epi16(1);
    __m256i sum[M][N] = {};
    for (size_t at = 0, w = 0; at < bytes; at += WIDTH, w += 2 * WIDTH)
        for (size_t m = 0; m < M; ++m) {
            const __m256i x = group_of(code[m], at, bytes);
            const __m256i a = _mm256_and_si256(x, low), b = _mm256_and_si256(_mm256_srli_epi16(x, 4), low);
            for (size_t n = 0; n < N; ++n) {
                const __m256i both = _mm256_add_epi16(_mm256_maddubs_epi16(a, read<__m256i>(weights[n] + w)),
                                                      _mm256_maddubs_epi16(b, read<__m256i>(weights[n] + w + WIDTH)));
                sum[m][n] = _mm256_add_epi32(sum[m][n], _mm256_madd_epi16(both, ones));
            }
        }
    for (size_t m = 0; m < M; ++m)
        for (size_t n = 0; n < N; ++n) out[m][n] = total(sum[m][n]);
#elif defined(__ARM_NEON) && defined(__aarch64__)
    int32x4_t sum[M][N] = {}, more[M][N] = {};
    for (size_t at = 0, w = 0; at < bytes; at += WIDTH, w += 2 * WIDTH)
        for (size_t m = 0; m < M; ++m) {
            const uint8x16_t x = vld1q_u8(code[m] + at);
            const int8x16_t a = vreinterpretq_s8_u8(vandq_u8(x, vdupq_n_u8(15)));
            const int8x16_t b = vreinterpretq_s8_u8(vshrq_n_u8(x, 4));
            for (size_t n = 0; n < N; ++n) {
                const int8x16_t u = vld1q_s8(weights[n] + w), v = vld1q_s8(weights[n] + w + WIDTH);
#if defined(__ARM_FEATURE_DOTPROD)
                sum[m][n] = vdotq_s32(sum[m][n], a, u);
                more[m][n] = vdotq_s32(more[m][n], b, v);
#else
                int16x8_t part = vmull_s8(vget_low_s8(a), vget_low_s8(u));  // 4 * 15 * 127 fits into 16 bits
                part = vmlal_s8(part, vget_high_s8(a), vget_high_s8(u));
                part = vmlal_s8(part, vget_low_s8(b), vget_low_s8(v));
                part = vmlal_s8(part, vget_high_s8(b), vget_high_s8(v));
                sum[m][n] = vpadalq_s16(sum[m][n], part);
#endif
            }
        }
    for (size_t m = 0; m < M; ++m)
        for (size_t n = 0; n < N; ++n) out[m][n] = vaddvq_s32(vaddq_s32(sum[m][n], more[m][n]));
#else
    for (size_t m = 0; m < M; ++m)
        for (size_t n = 0; n < N; ++n) {
            int32_t sum = 0;
            for (size_t at = 0, w = 0; at < bytes; at += WIDTH, w += 2 * WIDTH)
                for (size_t b = 0; b < WIDTH; ++b)
                    sum += (code[m][at + b] & 15) * weights[n][w + b] + (code[m][at + b] >> 4) * weights[n][w + WIDTH + b];
            out[m][n] = sum;
        }
#endif
}

}  // namespace
}  // namespace logt
