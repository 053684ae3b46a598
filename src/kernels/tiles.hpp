// Products of the fields of packed codes with the weights of many queries, by the matrix instructions of x86 (AMX). With
// internal linkage, as all that is compiled per instruction set.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "best.hpp"
#include "bits.hpp"

namespace logt {
namespace {

#if defined(LOGT_AMX)

// FIELDS: per byte of code: 8 bits, or 2 numbers of 4 bits. A tile has 16 rows of 64 bytes. One multiplication adds, to
// 16 x 16 sums, the products of 64 weights of 16 queries and 64 fields of 16 vectors. Its second factor has, in each row, four
// bytes of each vector: so the codes of 16 vectors are transposed word by word, and each field of a word is one row.
template <size_t FIELDS>
class Products {
  public:
    static constexpr size_t BLOCK = 32;  // vectors that are multiplied together

    Products(size_t bytes, size_t queries)
        : bytes_(bytes), depth_((bytes + WIDTH - 1) / WIDTH * WIDTH * FIELDS), all_(queries * depth_),
          chosen_((queries + TILE - 1) / TILE * TILE * depth_), fields_(BLOCK / TILE * GROUP),
          sums_((queries + TILE - 1) / TILE * TILE * BLOCK) {
        std::memset(chosen_.data, 0, (queries + TILE - 1) / TILE * TILE * depth_);
        struct alignas(64) {
            uint8_t palette = 1, start = 0, reserved[14] = {};
            uint16_t row_bytes[16] = {};
            uint8_t rows[16] = {};
        } shape;
        std::fill_n(shape.row_bytes, 8, uint16_t{WIDTH});
        std::fill_n(shape.rows, 8, uint8_t{TILE});
        asm volatile("" ::: "memory");  // GCC does not know all that the tile instructions read
        _tile_loadconfig(&shape);
    }
    ~Products() { _tile_release(); }
    Products(const Products&) = delete;
    Products& operator=(const Products&) = delete;

    // Weights of a query, in the order of the fields of transposed codes: word by word, for each the fields of its four bytes.
    void set(size_t query, const Weights& weights) {
        int8_t* out = all_.data + query * depth_;
        for (const int8_t* group = weights.values.data; group < weights.values.data + depth_; group += WIDTH * FIELDS)
            for (size_t word = 0; word < WIDTH; word += 4)
                for (size_t f = 0; f < FIELDS; ++f, out += 4) std::memcpy(out, group + f * WIDTH + word, 4);
    }
    // The queries of the next multiplications.
    template <typename Query>
    void choose(size_t count, Query&& query) {
        for (size_t i = 0; i < count; ++i) std::memcpy(chosen_.data + i * depth_, all_.data + query(i) * depth_, depth_);
        count_ = count;
    }
    // The sums of weight * field of up to BLOCK vectors: those of the i-th query that was chosen start at i * BLOCK.
    const int32_t* multiply(const uint8_t* codes, size_t rows) {
        for (size_t q = 0; q < count_; q += 2 * TILE) {
            if (count_ - q > TILE) rows > TILE ? multiply_tiles<2, 2>(q, codes, rows) : multiply_tiles<2, 1>(q, codes, rows);
            else rows > TILE ? multiply_tiles<1, 2>(q, codes, rows) : multiply_tiles<1, 1>(q, codes, rows);
        }
        return sums_.data;
    }

  private:
    static constexpr size_t TILE = 16, GROUP = TILE * WIDTH * FIELDS;  // GROUP: fields of a group of bytes of 16 vectors

    // Group by group: what is unpacked stays in the nearest cache.
    template <size_t QUERIES, size_t VECTORS>
    void multiply_tiles(size_t query, const uint8_t* codes, size_t rows) {
        const int8_t* weights = chosen_.data + query * depth_;
        const size_t more = TILE * depth_;  // to the next tile of queries
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
        for (size_t at = 0; at < bytes_; at += WIDTH) {
            unpack(codes, at, std::min(rows, TILE), fields_.data);
            if constexpr (VECTORS == 2) unpack(codes + TILE * bytes_, at, rows - TILE, fields_.data + GROUP);
            asm volatile("" ::: "memory");
            for (const uint8_t* fields = fields_.data; fields < fields_.data + GROUP; fields += TILE * WIDTH, weights += WIDTH) {
                _tile_loadd(4, weights, depth_);
                _tile_loadd(6, fields, WIDTH);
                _tile_dpbsud(0, 4, 6);
                if constexpr (VECTORS == 2) {
                    _tile_loadd(7, fields + GROUP, WIDTH);
                    _tile_dpbsud(1, 4, 7);
                }
                if constexpr (QUERIES == 2) {
                    _tile_loadd(5, weights + more, depth_);
                    _tile_dpbsud(2, 5, 6);
                    if constexpr (VECTORS == 2) _tile_dpbsud(3, 5, 7);
                }
            }
            asm volatile("" ::: "memory");
        }
        int32_t* sums = sums_.data + query * BLOCK;
        constexpr size_t stride = BLOCK * sizeof(int32_t);
        _tile_stored(0, sums, stride);
        if constexpr (VECTORS == 2) _tile_stored(1, sums + TILE, stride);
        if constexpr (QUERIES == 2) {
            _tile_stored(2, sums + TILE * BLOCK, stride);
            if constexpr (VECTORS == 2) _tile_stored(3, sums + TILE * BLOCK + TILE, stride);
        }
    }

    // The fields of a group of bytes of up to 16 vectors, by rows of 16 times four bytes.
    void unpack(const uint8_t* codes, size_t at, size_t rows, uint8_t* out) const {
        constexpr unsigned BITS = 8 / FIELDS;
        const __m512i mask = _mm512_set1_epi8((1 << BITS) - 1);
        __m512i x[TILE] = {};
        for (size_t row = 0; row < rows; ++row) {
            x[row] = group_of(codes + row * bytes_, at, bytes_);
            __builtin_prefetch(codes + (row + BLOCK) * bytes_ + at);  // most often, the next list is next
        }
        transpose(x);
        for (size_t word = 0; word < TILE; ++word)
            for (unsigned f = 0; f < FIELDS; ++f, out += WIDTH) {
                const __m512i field = _mm512_and_si512(_mm512_srli_epi32(x[word], f * BITS), mask);
                std::memcpy(out, &field, sizeof field);
            }
    }

    // Word j of x[i] becomes word i of x[j].
    static void transpose(__m512i (&x)[TILE]) {
        __m512i y[TILE];
        for (size_t i = 0; i < TILE; i += 2) {
            y[i] = _mm512_unpacklo_epi32(x[i], x[i + 1]);
            y[i + 1] = _mm512_unpackhi_epi32(x[i], x[i + 1]);
        }
        for (size_t i = 0; i < TILE; i += 4)
            for (size_t j = 0; j < 2; ++j) {
                x[i + 2 * j] = _mm512_unpacklo_epi64(y[i + j], y[i + j + 2]);
                x[i + 2 * j + 1] = _mm512_unpackhi_epi64(y[i + j], y[i + j + 2]);
            }
        for (size_t j = 0; j < 4; ++j) {
            const __m512i even[2] = {_mm512_shuffle_i32x4(x[j], x[4 + j], 0x88), _mm512_shuffle_i32x4(x[8 + j], x[12 + j], 0x88)};
            const __m512i odd[2] = {_mm512_shuffle_i32x4(x[j], x[4 + j], 0xDD), _mm512_shuffle_i32x4(x[8 + j], x[12 + j], 0xDD)};
            y[j] = _mm512_shuffle_i32x4(even[0], even[1], 0x88);
            y[4 + j] = _mm512_shuffle_i32x4(odd[0], odd[1], 0x88);
            y[8 + j] = _mm512_shuffle_i32x4(even[0], even[1], 0xDD);
            y[12 + j] = _mm512_shuffle_i32x4(odd[0], odd[1], 0xDD);
        }
        std::copy(y, y + TILE, x);
    }

    size_t bytes_, depth_, count_ = 0;
    Buffer<int8_t> all_, chosen_;
    Buffer<uint8_t> fields_;
    Buffer<int32_t> sums_;
};

#endif

}  // namespace
}  // namespace logt
