// Inner products of rows of int8. Included by copies for each instruction set.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>

#include "lanes.hpp"

namespace logt {
namespace {

#if defined(__AVX512VNNI__)
constexpr size_t BYTES = 64;  // of each row, per step
#elif defined(__AVX512BW__)
constexpr size_t BYTES = 32;
#else
constexpr size_t BYTES = 16;
#endif

// out[a][b] = rows[a] . columns[b]. Several at once: each row is loaded once for all columns.
template <size_t A, size_t B>
inline void byte_dots(const int8_t* const (&rows)[A], const int8_t* const (&columns)[B], size_t dim, int32_t (&out)[A][B]) {
    size_t i = 0;
#if defined(__AVX512VNNI__)
    // The instruction takes one factor without a sign: 128 is added to it, and 128 times the sum of the other taken away.
    const __m512i sign = _mm512_set1_epi8(static_cast<char>(0x80));
    __m512i sum[A][B] = {}, added[B] = {};
    for (; i + BYTES <= dim; i += BYTES) {
        __m512i row[A];
        for (size_t a = 0; a < A; ++a) row[a] = _mm512_xor_si512(read<__m512i>(rows[a] + i), sign);
        for (size_t b = 0; b < B; ++b) {
            const __m512i column = read<__m512i>(columns[b] + i);
            added[b] = _mm512_dpbusd_epi32(added[b], sign, column);
            for (size_t a = 0; a < A; ++a) sum[a][b] = _mm512_dpbusd_epi32(sum[a][b], row[a], column);
        }
    }
    for (size_t a = 0; a < A; ++a)
        for (size_t b = 0; b < B; ++b) out[a][b] = _mm512_reduce_add_epi32(_mm512_sub_epi32(sum[a][b], added[b]));
#elif defined(__AVX512BW__)
    __m512i sum[A][B] = {};
    for (; i + BYTES <= dim; i += BYTES) {
        __m512i row[A];
        for (size_t a = 0; a < A; ++a) row[a] = _mm512_cvtepi8_epi16(read<__m256i>(rows[a] + i));
        for (size_t b = 0; b < B; ++b) {
            const __m512i column = _mm512_cvtepi8_epi16(read<__m256i>(columns[b] + i));
            for (size_t a = 0; a < A; ++a) sum[a][b] = _mm512_add_epi32(sum[a][b], _mm512_madd_epi16(row[a], column));
        }
    }
    for (size_t a = 0; a < A; ++a)
        for (size_t b = 0; b < B; ++b) out[a][b] = _mm512_reduce_add_epi32(sum[a][b]);
#elif defined(__AVX2__)
    __m256i sum[A][B] = {};
    for (; i + BYTES <= dim; i += BYTES) {
        __m256i row[A];
        for (size_t a = 0; a < A; ++a) row[a] = _mm256_cvtepi8_epi16(read<__m128i>(rows[a] + i));
        for (size_t b = 0; b < B; ++b) {
            const __m256i column = _mm256_cvtepi8_epi16(read<__m128i>(columns[b] + i));
            for (size_t a = 0; a < A; ++a) sum[a][b] = _mm256_add_epi32(sum[a][b], _mm256_madd_epi16(row[a], column));
        }
    }
    for (size_t a = 0; a < A; ++a)
        for (size_t b = 0; b < B; ++b) {
            int32_t lanes[8];
            std::memcpy(lanes, &sum[a][b], sizeof lanes);
            out[a][b] = std::accumulate(lanes, lanes + 8, 0);
        }
#elif defined(__ARM_FEATURE_DOTPROD)
    int32x4_t sum[A][B] = {};
    for (; i + BYTES <= dim; i += BYTES) {
        int8x16_t row[A];
        for (size_t a = 0; a < A; ++a) row[a] = vld1q_s8(rows[a] + i);
        for (size_t b = 0; b < B; ++b) {
            const int8x16_t column = vld1q_s8(columns[b] + i);
            for (size_t a = 0; a < A; ++a) sum[a][b] = vdotq_s32(sum[a][b], row[a], column);
        }
    }
    for (size_t a = 0; a < A; ++a)
        for (size_t b = 0; b < B; ++b) out[a][b] = vaddvq_s32(sum[a][b]);
#else
    typedef int16_t Short __attribute__((vector_size(BYTES * 2)));
    typedef int32_t Int __attribute__((vector_size(BYTES * 4)));
    typedef int8_t Byte __attribute__((vector_size(BYTES)));
    const auto wide = [](const int8_t* p) { return __builtin_convertvector(read<Byte>(p), Short); };
    Int sum[A][B] = {};
    for (; i + BYTES <= dim; i += BYTES)
        for (size_t a = 0; a < A; ++a)
            for (size_t b = 0; b < B; ++b)
                sum[a][b] += __builtin_convertvector(wide(rows[a] + i) * wide(columns[b] + i), Int);
    for (size_t a = 0; a < A; ++a)
        for (size_t b = 0; b < B; ++b) {
            out[a][b] = 0;
            for (size_t l = 0; l < BYTES; ++l) out[a][b] += sum[a][b][l];
        }
#endif
    for (; i < dim; ++i)
        for (size_t a = 0; a < A; ++a)
            for (size_t b = 0; b < B; ++b) out[a][b] += rows[a][i] * columns[b][i];
}

}  // namespace
}  // namespace logt
