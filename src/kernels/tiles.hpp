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
// 16 x 16 sums, the products of 64 fields of 16 vectors and 64 weights of 16 queries. Its second factor has, in each row, four
// weights of each query.
template <size_t FIELDS>
class Products {
  public:
    static constexpr size_t TILE = 16;    // vectors, or queries
    static constexpr size_t BLOCK = 128;  // vectors that are multiplied together

    Products(size_t bytes, size_t queries)
        : bytes_(bytes), tiles_((queries + TILE - 1) / TILE), steps_((bytes + WIDTH - 1) / WIDTH * FIELDS),
          weights_(steps_ * tiles_ * SIZE), fields_(STEPS * SIZE), sums_(BLOCK * tiles_ * TILE) {
        std::memset(weights_.data, 0, steps_ * tiles_ * SIZE);
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

    size_t tiles() const { return tiles_; }          // of queries
    size_t stride() const { return tiles_ * TILE; }  // of the sums of a vector

    void set(size_t query, const Weights& weights) {
        const int8_t* next = weights.values.data;
        for (size_t step = 0; step < steps_; ++step) {
            int8_t* out = weights_.data + (step * tiles_ + query / TILE) * SIZE + query % TILE * 4;
            for (size_t row = 0; row < TILE; ++row, next += 4) std::memcpy(out + row * WIDTH, next, 4);
        }
    }
    // The sums of weight * field of up to BLOCK vectors: that of the v-th and of query q is at v * stride() + q. Only for the
    // queries of the tiles whose bit is set. By parts of the codes, so that their weights stay in the nearest cache.
    const int32_t* multiply(const uint8_t* codes, size_t rows, uint32_t tiles) {
        for (size_t step = 0; step < steps_; step += STEPS)
            for (size_t row = 0; row < rows; row += TILE) {
                unpack(codes + row * bytes_, step / FIELDS * WIDTH, std::min(TILE, rows - row));
                asm volatile("" ::: "memory");
                for (uint32_t left = tiles; left;) {
                    size_t chosen[MOST];
                    const size_t count = std::min<size_t>(MOST, static_cast<size_t>(__builtin_popcount(left)));
                    for (size_t i = 0; i < count; ++i, left &= left - 1) chosen[i] = static_cast<size_t>(__builtin_ctz(left));
                    if (count == 4) add<4>(chosen, step, row);
                    else if (count == 3) add<3>(chosen, step, row);
                    else if (count == 2) add<2>(chosen, step, row);
                    else add<1>(chosen, step, row);
                }
                asm volatile("" ::: "memory");
            }
        return sums_.data;
    }

  private:
    static constexpr size_t SIZE = TILE * WIDTH;  // bytes of a tile
    static constexpr size_t STEPS = 8;            // tiles of fields that are unpacked at a time
    static constexpr size_t MOST = 4;             // tiles of sums that are kept in registers

    // Adds the products of the fields that were unpacked, of the vectors from `row` on, to the sums of some tiles of queries.
    template <size_t COUNT>
    void add(const size_t (&chosen)[MOST], size_t step, size_t row) {
        int32_t* sums = sums_.data + row * stride();
        const size_t bytes = stride() * sizeof(int32_t), stop = std::min(steps_, step + STEPS);
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
        if (step) {
            _tile_loadd(0, sums + chosen[0] * TILE, bytes);
            if constexpr (COUNT > 1) _tile_loadd(1, sums + chosen[1] * TILE, bytes);
            if constexpr (COUNT > 2) _tile_loadd(2, sums + chosen[2] * TILE, bytes);
            if constexpr (COUNT > 3) _tile_loadd(3, sums + chosen[3] * TILE, bytes);
        }
        const uint8_t* fields = fields_.data;
        for (const int8_t* weights = weights_.data + step * tiles_ * SIZE; step < stop; ++step) {
            _tile_loadd(4, fields, WIDTH);
            _tile_loadd(5, weights + chosen[0] * SIZE, WIDTH);
            _tile_dpbusd(0, 4, 5);
            if constexpr (COUNT > 1) {
                _tile_loadd(6, weights + chosen[1] * SIZE, WIDTH);
                _tile_dpbusd(1, 4, 6);
            }
            if constexpr (COUNT > 2) {
                _tile_loadd(7, weights + chosen[2] * SIZE, WIDTH);
                _tile_dpbusd(2, 4, 7);
            }
            if constexpr (COUNT > 3) {
                _tile_loadd(5, weights + chosen[3] * SIZE, WIDTH);
                _tile_dpbusd(3, 4, 5);
            }
            fields += SIZE, weights += tiles_ * SIZE;
        }
        _tile_stored(0, sums + chosen[0] * TILE, bytes);
        if constexpr (COUNT > 1) _tile_stored(1, sums + chosen[1] * TILE, bytes);
        if constexpr (COUNT > 2) _tile_stored(2, sums + chosen[2] * TILE, bytes);
        if constexpr (COUNT > 3) _tile_stored(3, sums + chosen[3] * TILE, bytes);
    }

    // The fields of some bytes of up to 16 vectors, in tiles: a row per vector.
    void unpack(const uint8_t* codes, size_t from, size_t rows) {
        constexpr unsigned BITS = 8 / FIELDS;
        const __m512i mask = _mm512_set1_epi8((1 << BITS) - 1);
        const size_t to = std::min(bytes_, from + STEPS / FIELDS * WIDTH);
        for (size_t row = 0; row < rows; ++row, codes += bytes_) {
            uint8_t* out = fields_.data + row * WIDTH;
            for (size_t at = from; at < to; at += WIDTH) {
                const __m512i x = group_of(codes, at, bytes_);
                __builtin_prefetch(codes + TILE * bytes_ + at);  // most often, the next list is next
                for (unsigned f = 0; f < FIELDS; ++f, out += SIZE) {
                    const __m512i field = _mm512_and_si512(_mm512_srli_epi32(x, f * BITS), mask);
                    std::memcpy(out, &field, sizeof field);
                }
            }
        }
    }

    size_t bytes_, tiles_, steps_;
    Buffer<int8_t> weights_;
    Buffer<uint8_t> fields_;
    Buffer<int32_t> sums_;
};

#endif

}  // namespace
}  // namespace logt
