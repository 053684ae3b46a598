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
void byte_products_of(const ByteRows& X, const uint32_t* rows, size_t first, size_t columns, int32_t* out) {
    constexpr size_t B = 4;
    const int8_t* row[A];
    for (size_t a = 0; a < A; ++a) row[a] = X.codes + rows[a] * X.dim;
    for (size_t c = 0; c < columns; c += B) {
        const int8_t* column[B];
        for (size_t b = 0; b < B; ++b) column[b] = X.codes + (first + std::min(c + b, columns - 1)) * X.dim;
        int32_t dots[A][B];
        byte_dots<A, B>(row, column, X.dim, dots);
        for (size_t a = 0; a < A; ++a) std::copy_n(dots[a], std::min(B, columns - c), out + a * columns + c);
    }
}

void byte_products(const ByteRows& X, const uint32_t* rows, size_t count, size_t first, size_t columns, int32_t* out) {
    constexpr size_t A = 4;
    for (; count >= A; count -= A, rows += A, out += A * columns) byte_products_of<A>(X, rows, first, columns, out);
    for (; count; --count, ++rows, out += columns) byte_products_of<1>(X, rows, first, columns, out);
}

}  // namespace
}  // namespace logt
