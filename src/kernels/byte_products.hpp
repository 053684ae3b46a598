// Inner products of some rows of int8 with others. Included by copies for each instruction set.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "bytes.hpp"
#include "kernels.hpp"

namespace logt {
namespace {

template <size_t A>
void byte_products_of(const int8_t* const (&row)[A], const int8_t* Y, size_t columns, size_t dim, int32_t* out) {
    constexpr size_t B = 4;
    for (size_t c = 0; c < columns; c += B) {
        const int8_t* column[B];
        for (size_t b = 0; b < B; ++b) column[b] = Y + std::min(c + b, columns - 1) * dim;
        int32_t dots[A][B];
        byte_dots<A, B>(row, column, dim, dots);
        for (size_t a = 0; a < A; ++a) std::copy_n(dots[a], std::min(B, columns - c), out + a * columns + c);
    }
}

void byte_products(const int8_t* X, const uint32_t* rows, size_t count, const int8_t* Y, size_t columns, size_t dim,
                   int32_t* out) {
    constexpr size_t A = 4;
    const auto row = [&](size_t i) { return X + (rows ? rows[i] : i) * dim; };
    size_t i = 0;
    for (; i + A <= count; i += A)
        byte_products_of<A>({row(i), row(i + 1), row(i + 2), row(i + 3)}, Y, columns, dim, out + i * columns);
    for (; i < count; ++i) byte_products_of<1>({row(i)}, Y, columns, dim, out + i * columns);
}

}  // namespace
}  // namespace logt
