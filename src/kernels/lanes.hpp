// Sixteen floats side by side, in as many registers as the instruction set of this copy needs. GCC/Clang vector types;
// intrinsics only for gathers, for widening and for comparison masks, which GCC 12 makes of those by single lanes.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#if defined(__SSE2__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

namespace logt {
namespace {

#if defined(__AVX512F__)
constexpr size_t VECTOR = 16;
#elif defined(__AVX2__)
constexpr size_t VECTOR = 8;
#else
constexpr size_t VECTOR = 4;
#endif
constexpr size_t LANES = 16;
constexpr size_t GATHER = std::min<size_t>(VECTOR, 8);  // two gathers of 8 take a third of the time of one of 16

template <size_t V>
struct Vectors {
    typedef float Float __attribute__((vector_size(V * 4)));
    typedef int32_t Int __attribute__((vector_size(V * 4)));
};
using Vec = Vectors<VECTOR>::Float;

template <typename T>
inline T read(const void* p) {
    T v;
    std::memcpy(&v, p, sizeof v);
    return v;
}

template <typename T>
inline void write(void* p, T v) {
    std::memcpy(p, &v, sizeof v);
}

// The sum of V floats, by halves.
template <size_t V>
inline float folded(typename Vectors<V>::Float v) {
    if constexpr (V > 4) {
        using Half = typename Vectors<V / 2>::Float;
        Half half[2];
        std::memcpy(half, &v, sizeof half);
        return folded<V / 2>(half[0] + half[1]);
    } else {
        v += __builtin_shufflevector(v, v, 2, 3, 0, 1);
        v += __builtin_shufflevector(v, v, 1, 0, 3, 2);
        return v[0];
    }
}

template <size_t V>
struct LanesOf {
    using Float = typename Vectors<V>::Float;
    static constexpr size_t PARTS = LANES / V;
    Float part[PARTS];

    void store(float (&p)[LANES]) const { std::memcpy(p, part, sizeof part); }
    // this += w * p[0..15]
    void add(float w, const float* p) {
        for (size_t i = 0; i < PARTS; ++i) part[i] += w * read<Float>(p + i * V);
    }
    void add(const LanesOf& a, const LanesOf& b) {
        for (size_t i = 0; i < PARTS; ++i) part[i] += a.part[i] * b.part[i];
    }
    // scale * (this + other) + bias
    LanesOf combined(const LanesOf& other, float scale, float bias) const {
        LanesOf v;
        for (size_t i = 0; i < PARTS; ++i) v.part[i] = (part[i] + other.part[i]) * scale + bias;
        return v;
    }
    float sum() const {
        Float total = part[0];
        for (size_t i = 1; i < PARTS; ++i) total += part[i];
        return folded<V>(total);
    }
};
using Lanes = LanesOf<VECTOR>;

// Bit l is set where v[l] > threshold[l].
inline uint32_t above(const Lanes& v, const float* threshold) {
    uint32_t mask = 0;
    for (size_t i = 0; i < Lanes::PARTS; ++i) {
        const Vec t = read<Vec>(threshold + i * VECTOR);
#if defined(__AVX512F__)
        mask |= static_cast<uint32_t>(_mm512_cmp_ps_mask((__m512)v.part[i], (__m512)t, _CMP_GT_OQ));
#elif defined(__AVX2__)
        mask |= static_cast<uint32_t>(_mm256_movemask_ps((__m256)(v.part[i] > t))) << (i * VECTOR);
#elif defined(__SSE2__)
        mask |= static_cast<uint32_t>(_mm_movemask_ps((__m128)(v.part[i] > t))) << (i * VECTOR);
#else
        for (size_t l = 0; l < VECTOR; ++l) mask |= static_cast<uint32_t>(v.part[i][l] > t[l]) << (i * VECTOR + l);
#endif
    }
    return mask;
}

// Bit l is set where values[l] >= threshold, of LANES values.
inline uint32_t not_below(const float* values, float threshold) {
#if defined(__ARM_NEON) && defined(__aarch64__)
    const float32x4_t t = vdupq_n_f32(threshold);
    const uint32x4_t bits = {1, 2, 4, 8};
    uint32_t mask = 0;
    for (size_t i = 0; i < LANES; i += 4)
        mask |= vaddvq_u32(vandq_u32(vcgeq_f32(vld1q_f32(values + i), t), bits)) << i;
    return mask;
#elif defined(__AVX512F__)
    return _mm512_cmp_ps_mask(_mm512_loadu_ps(values), _mm512_set1_ps(threshold), _CMP_GE_OQ);
#elif defined(__AVX2__)
    const __m256 t = _mm256_set1_ps(threshold);
    const auto half = [&](size_t i) {
        return static_cast<uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(_mm256_loadu_ps(values + i), t, _CMP_GE_OQ)));
    };
    return half(0) | half(8) << 8;
#else
    uint32_t mask = 0;
    for (size_t l = 0; l < LANES; ++l) mask |= static_cast<uint32_t>(values[l] >= threshold) << l;
    return mask;
#endif
}

// V weights as floats
template <size_t V>
inline typename Vectors<V>::Float widened(const float* p) {
    return read<typename Vectors<V>::Float>(p);
}
template <size_t V>
inline typename Vectors<V>::Float widened(const int8_t* p) {
    using Float = typename Vectors<V>::Float;
#if defined(__AVX512F__)
    if constexpr (V == 16) return (Float)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(read<__m128i>(p)));
#endif
#if defined(__AVX2__)
    if constexpr (V == 8) return (Float)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_cvtsi64_si128(read<int64_t>(p))));
#endif
#if defined(__SSE2__)
    if constexpr (V == 4) {
        const __m128i bytes = _mm_cvtsi32_si128(read<int32_t>(p)), twice = _mm_unpacklo_epi8(bytes, bytes);
        return (Float)_mm_cvtepi32_ps(_mm_srai_epi32(_mm_unpacklo_epi16(twice, twice), 24));
    }
#endif
    Float v;
    for (size_t l = 0; l < V; ++l) v[l] = p[l];
    return v;
}

// Sixteen of them
template <size_t V, typename Weight>
[[gnu::always_inline]] inline LanesOf<V> sixteen(const Weight* p) {
    LanesOf<V> v;
#if defined(__ARM_NEON) && defined(__aarch64__)
    if constexpr (std::is_same_v<Weight, int8_t>) {
        static_assert(V == 4);
        const int8x16_t bytes = vld1q_s8(p);
        const int16x8_t half[2] = {vmovl_s8(vget_low_s8(bytes)), vmovl_high_s8(bytes)};
        for (size_t i = 0; i < 2; ++i) {
            v.part[2 * i] = (Vec)vcvtq_f32_s32(vmovl_s16(vget_low_s16(half[i])));
            v.part[2 * i + 1] = (Vec)vcvtq_f32_s32(vmovl_high_s16(half[i]));
        }
        return v;
    }
#endif
    for (size_t i = 0; i < LanesOf<V>::PARTS; ++i) v.part[i] = widened<V>(p + i * V);
    return v;
}

// weight[0..15] as floats, with 0 outside the ranks from..to-1
template <size_t V, typename Weight>
inline LanesOf<V> weights(const Weight* weight, int32_t from, int32_t to) {
    using Int = typename Vectors<V>::Int;
    Int rank;
    for (size_t l = 0; l < V; ++l) rank[l] = static_cast<int32_t>(l);
    LanesOf<V> v = sixteen<V>(weight);
    for (size_t i = 0; i < LanesOf<V>::PARTS; ++i) {
        v.part[i] = (typename Vectors<V>::Float)((Int)v.part[i] & (rank >= from) & (rank < to));
        rank += static_cast<int32_t>(V);
    }
    return v;
}

#if defined(__AVX2__)
inline __m256i eight(const uint16_t* unit) { return _mm256_cvtepu16_epi32(read<__m128i>(unit)); }
inline __m256i eight(const uint32_t* unit) { return read<__m256i>(unit); }
#endif

// c[unit[0..15]]
template <typename Unit>
inline LanesOf<GATHER> gather(const float* c, const Unit* unit) {
    LanesOf<GATHER> v;
    for (size_t i = 0; i < LanesOf<GATHER>::PARTS; ++i) {
#if defined(__AVX2__)
        // A gather merges into its target, so it would wait for the row before: gather into zeros. The mask is hidden
        // from the compiler, which drops the zeros where it knows that all lanes are loaded.
        const __m256 zero = _mm256_setzero_ps();
        __m256 all = _mm256_cmp_ps(zero, zero, _CMP_EQ_OQ);
        asm("" : "+x"(all));
        v.part[i] = (Vectors<GATHER>::Float)_mm256_mask_i32gather_ps(zero, c, eight(unit + i * GATHER), all, 4);
#else
        for (size_t l = 0; l < GATHER; ++l) v.part[i][l] = c[unit[i * GATHER + l]];
#endif
    }
    return v;
}

}  // namespace
}  // namespace logt
