// Diffusion on a neighbor graph: the edges of the graph, and the solution for one query.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "neighbor_lists.hpp"

namespace logt {

// The edges of a diffusion: pairs of rows that are among the first neighbors of each other. In the list of row i, the
// edge to row j weighs cube[level] * gain[i] * gain[j]; the smaller of the two weights counts.
struct Edges {
    NeighborLists lists;
    size_t width;           // bytes of `mutual` per row
    const uint8_t* mutual;  // (rows, width): bit a is set if the a-th neighbor has the row among its first neighbors too
    const float* gain;      // of each row
    const double* cube;     // of each level

    size_t degree(size_t i) const {  // the number of edges
        size_t count = 0;
        for (size_t byte = 0; byte < width; ++byte) count += static_cast<size_t>(__builtin_popcount(mutual[i * width + byte]));
        return count;
    }
    // Calls edge(j, weight) for each edge of row i, nearest first.
    template <typename Edge>
    void each(size_t i, Edge&& edge) const {
        for (size_t byte = 0; byte < width; ++byte)
            for (unsigned bits = mutual[i * width + byte]; bits; bits &= bits - 1) {
                const size_t a = 8 * byte + static_cast<size_t>(__builtin_ctz(bits));
                const uint32_t j = lists.neighbor(i, a);
                const double gains = static_cast<double>(gain[i]) * gain[j];
                edge(j, static_cast<float>(cube[lists.level[i * lists.k + a]] * gains));
            }
    }
};

// What one query spreads to, and how: f = (I - alpha S)^-1 y on at most `nodes` rows, `hops` edges from those of y.
struct Spread {
    double alpha;
    size_t hops, nodes, steps;
    double precision;        // of the residual, relative to y
    const uint8_t* visible;  // one per row, or null for all
};

// Fills the bits and gains of the edges among the `first` neighbors, as in graph/diffusion.py. above: the similarity of
// each level less the background; edges need more than 0. least: the smallest local scale.
void find_mutual(const NeighborLists& lists, size_t first, const double* above, double least, uint8_t* mutual, float* gain);

// Returns the rows that the query spreads to, those of y first, and their scores in f.
std::vector<int64_t> spread(const Edges& S, const Spread& how, const int64_t* rows, const double* y, size_t count,
                            std::vector<double>& f);

}  // namespace logt
