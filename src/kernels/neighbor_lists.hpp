// The stored neighbors of each row of a graph (graph/stored_graph.py).
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace logt {

struct NeighborLists {
    static constexpr uint32_t NONE = 0xFFFFFFFF;
    size_t rows, k;
    const uint16_t* low;   // (rows, k): the neighbors of a row, nearest first, are the rows low + 65536 * high
    const void* high;      // (rows, k): uint8, or uint16 if wide
    bool wide;
    const uint8_t* level;  // (rows, k): the similarity as a byte; 0 means no neighbor, here and after it

    uint32_t neighbor(size_t row, size_t j) const {
        return level[row * k + j] ? known_neighbor(row, j) : NONE;
    }
    uint32_t known_neighbor(size_t row, size_t j) const {  // j < count(row)
        const size_t at = row * k + j;
        const uint32_t upper = wide ? static_cast<const uint16_t*>(high)[at] : static_cast<const uint8_t*>(high)[at];
        return low[at] | upper << 16;
    }
    size_t count(size_t row) const {
        const uint8_t* first = level + row * k;
        const void* end = std::memchr(first, 0, k);
        return end ? static_cast<size_t>(static_cast<const uint8_t*>(end) - first) : k;
    }
    template <typename Fetch>
    void fetch(size_t row, Fetch&& bytes) const {
        bytes(low + row * k, 2 * k);
        bytes(static_cast<const uint8_t*>(high) + row * k * (wide ? 2 : 1), k * (wide ? 2 : 1));
        bytes(level + row * k, k);
    }
};

}  // namespace logt
