// A query in the terms of a codec: rotated, as weights of packed bits, and its products with the memory vectors. With
// internal linkage, as all that is compiled per instruction set.
#pragma once
#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

#include "best.hpp"
#include "bits.hpp"
#include "bytes.hpp"
#include "lanes.hpp"
#include "lists.hpp"
#include "seen.hpp"
#include "tiles.hpp"

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

// The Hadamard transform of n = 2^k values, scaled to keep norms.
void hadamard(float* x, size_t n) {
    for (size_t h = 1; n < VECTOR && h < n; h *= 2)
        for (size_t i = 0; i < n; i += 2 * h)
            for (size_t j = i; j < i + h; ++j) {
                const float a = x[j], b = x[j + h];
                x[j] = a + b, x[j + h] = a - b;
            }
    for (size_t i = 0; n >= VECTOR && i < n; i += VECTOR) write(x + i, crossed(read<Vec>(x + i)));
    size_t h = VECTOR;
    for (; 4 * h <= n; h *= 4)  // two steps at once
        for (size_t i = 0; i < n; i += 4 * h)
            for (size_t j = i; j < i + h; j += VECTOR) {
                const Vec a = read<Vec>(x + j), b = read<Vec>(x + j + h);
                const Vec c = read<Vec>(x + j + 2 * h), d = read<Vec>(x + j + 3 * h);
                const Vec near = a + b, far = c + d, nearer = a - b, farther = c - d;
                write(x + j, near + far);
                write(x + j + h, nearer + farther);
                write(x + j + 2 * h, near - far);
                write(x + j + 3 * h, nearer - farther);
            }
    for (size_t j = 0; h < n && j < h; j += VECTOR) {  // h = n / 2
        const Vec a = read<Vec>(x + j), b = read<Vec>(x + j + h);
        write(x + j, a + b);
        write(x + j + h, a - b);
    }
    const float scale = 1.0f / std::sqrt(static_cast<float>(n));
    for (size_t i = 0; i < n; ++i) x[i] *= scale;
}

void rotate(float* X, size_t rows, size_t stride, size_t dim, const float* signs, size_t sign_stride, size_t rounds,
            bool back) {
    size_t n = 1;
    while (2 * n <= dim) n *= 2;
    for (float* x = X; x < X + rows * stride; x += stride)
        for (size_t r = 0; r < rounds; ++r) {
            const size_t round = back ? rounds - 1 - r : r;
            float* window = x + (round % 2 ? dim - n : 0);
            const float* sign = signs + round * sign_stride;
            if (back) hadamard(window, n);
            for (size_t i = 0; i < dim; ++i) x[i] *= sign[i];
            if (!back) hadamard(window, n);
        }
}

// --------------------------------------------------------------------------------------------------- queries

// Steps of the optimal uniform quantizer of a normal variable, by bits (Max 1960), its mean squared error, and the mean
// size of the variable, the value that its sign represents.
constexpr float STEP[MAX_BITS + 1] = {0, 1.596f, 0.9957f, 0.586f, 0.3352f, 0.1881f, 0.1041f, 0.0568f, 0.0308f};
constexpr float MEAN_SIZE = 0.79788f, SIGN_ERROR = 0.36338f;

// What the sign of a coordinate of deviation 1 changes in its value: if it is all that is known, and as the first of some bits.
constexpr float SIGN = 2 * MEAN_SIZE;
inline float bit_of(size_t bits) { return STEP[bits] * static_cast<float>(1u << (bits - 1)); }

// Calls use(i, i % SUMS) for i < count. Sums have SUMS parts, which are independent, and as many for each instruction set, so
// that all agree.
constexpr size_t SUMS = 16;
template <typename Use>
inline void for_each_of_parts(size_t count, Use&& use) {
    size_t i = 0;
    for (; i + SUMS <= count; i += SUMS)
        for (size_t s = 0; s < SUMS; ++s) use(i + s, s);
    for (; i < count; ++i) use(i, i % SUMS);
}

// One query in the terms of one codec.
struct Query {
    Buffer<float> z;     // rotated, times `scale`
    float largest = 0;   // of z, without its sign
    Buffer<float> c;     // q·y for each unit and group that was measured
    Buffer<float> fine;  // what rounding the query leaves of c, for units that were refined
    Bits measured, refined;  // which these are
    Weights book;        // of the memory vectors' 4-bit coordinates
    Weights signs;       // of the sign bits alone
    Weights all_signs, low_bits;  // of all bits, in the same step
    std::optional<Weights> whole;  // of numbers of 8 bits, once they are needed
    float offset = 0;      // of all scores
    float deviation = 0;   // of q·residual, for a vector of factor 1
    float sign_error = 0;  // of the same once the signs are read
    bool one_bit = true;   // the signs are all there is
    bool uniform = true;   // all bands that are coded have as many bits: `signs` and `all_signs` have the same values

    Query(const Codec& codec, const float* q, float scale, bool l2)
        : z(codec.dim), c(codec.units + codec.groups), fine(codec.units), measured(codec.units), refined(codec.units) {
        double sums[SUMS] = {};
        for_each_of_parts(codec.dim, [&](size_t i, size_t s) {
            const float centred = q[i] - codec.mean[i];
            sums[s] += l2 ? -static_cast<double>(centred) * centred : static_cast<double>(q[i]) * codec.mean[i];
        });
        offset = static_cast<float>(std::accumulate(sums, sums + SUMS, 0.0));
        for (size_t j = 0; j < codec.dim; ++j) {
            const size_t i = static_cast<size_t>(codec.order[j]);
            z[j] = (l2 ? q[i] - codec.mean[i] : q[i]) * scale;
        }
        for (size_t b = 0; b < codec.bands; ++b) {
            const Band& band = codec.band[b];
            rotate(&z[band.start], 1, codec.dim, band.size, codec.signs + band.start, codec.dim, codec.rounds, false);
        }
        weigh(codec);
    }

    // The product with a memory vector. dot: of the weights of the book and its coordinates
    float product(float book_scale, int32_t dot) const {
        return book_scale * book.step * (static_cast<float>(dot) - 15 * book.half_sum);
    }

    // The product with a number of 8 bits for each dimension.
    float product(const int8_t* code, size_t dim) {
        if (!whole) whole.emplace(dim, 1, z.data, dim, largest);
        const int8_t *codes[1] = {code}, *weights[2] = {whole->values.data, whole->fine.data};
        int32_t dots[1][2];
        byte_dots<1, 2>(codes, weights, dim, dots);
        return whole->step * (static_cast<float>(dots[0][0]) + static_cast<float>(dots[0][1]) / Weights::FINE);
    }

    void weigh(const Codec& codec) {
        Buffer<float> of_book(codec.dim), of_sign(codec.sign_count), of_bit(codec.sign_count + codec.low_count);
        float book_most = 0, sign_most = 0, bit_most = 0;
        size_t bits = 0;
        double all = 0, left = 0;
        for (size_t b = 0; b < codec.bands; ++b) {
            const Band& band = codec.band[b];
            float energies[SUMS] = {}, mosts[SUMS] = {};
            for_each_of_parts(band.size, [&](size_t j, size_t s) {
                const float value = z[band.start + j];
                energies[s] += value * value;
                mosts[s] = std::max(mosts[s], std::fabs(value));
                of_book[band.start + j] = value * band.book_deviation;
            });
            const float energy = std::accumulate(energies, energies + SUMS, 0.0f), most = *std::max_element(mosts, mosts + SUMS);
            largest = std::max(largest, most);
            book_most = std::max(book_most, most * std::fabs(band.book_deviation));
            const double variance = static_cast<double>(energy) * band.deviation * band.deviation;
            all += variance;
            left += variance * (band.bits ? SIGN_ERROR : 1);
            if (!band.bits) continue;
            one_bit &= band.bits == 1;
            uniform &= !bits || band.bits == bits;
            bits = band.bits;
            const float sign = SIGN * band.deviation, bit = bit_of(band.bits) * band.deviation;
            for (size_t j = band.start; j < band.start + band.size; ++j) {
                of_sign[j] = z[j] * sign;
                of_bit[j] = z[j] * bit;
            }
            sign_most = std::max(sign_most, most * std::fabs(sign));
            bit_most = std::max(bit_most, most * std::fabs(bit));
        }
        deviation = static_cast<float>(std::sqrt(all));
        sign_error = static_cast<float>(std::sqrt(left));
        book = Weights(codec.book_bytes, 2, of_book.data, codec.dim, book_most);
        if (one_bit || !uniform) signs = Weights(codec.sign_bytes, 8, of_sign.data, codec.sign_count, sign_most);
        if (one_bit) return;
        float* next = of_bit.data + codec.sign_count;
        for (size_t plane = 1; plane < MAX_BITS; ++plane)
            for (size_t b = 0; b < codec.bands; ++b) {
                const Band& band = codec.band[b];
                const float share = 1 / static_cast<float>(1u << plane);  // exact
                for (size_t j = band.start; band.bits > plane && j < band.start + band.size; ++j) *next++ = of_bit[j] * share;
            }
        all_signs = Weights(codec.sign_bytes, 8, of_bit.data, codec.sign_count, bit_most);
        low_bits = Weights(codec.low_bytes, 8, of_bit.data + codec.sign_count, codec.low_count, bit_most);
        if (uniform) signs = Weights(all_signs, (codec.sign_bytes + WIDTH - 1) / WIDTH * WIDTH * 8, all_signs.step * SIGN / bit_of(bits));
    }
};

}  // namespace
}  // namespace logt
