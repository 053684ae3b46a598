// Diffusion on a neighbor graph: the edges of the graph, and the solution for one query.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace logt {

// The neighbors of each vector, nearest first: (rows, width), -1 for none. similarity: their cosines.
struct NearestLists {
    const int32_t* neighbor;
    const float* similarity;
    size_t rows, width;
};

// A symmetric matrix by row: the edges of row i are starts[i]..starts[i + 1].
struct Edges {
    const int64_t* starts;
    const int32_t* column;
    const float* weight;
};

// What one query spreads to, and how: f = (I - alpha S)^-1 y on at most `nodes` rows, `hops` edges from those of y.
struct Spread {
    double alpha;
    size_t hops, nodes, steps;
    double precision;        // of the residual, relative to y
    const uint8_t* visible;  // one per row, or null for all
};

// counts[i]: the neighbors of row i that have it as a neighbor too, with similarities above b.
void count_mutual(const NearestLists& lists, float b, int64_t* counts);

// Fills the edges that `count_mutual` counted, in the order of the lists, with the weights of stages/diffusion.py.
// least: the smallest local scale.
void fill_mutual(const NearestLists& lists, float b, float least, const int64_t* starts, int32_t* column, float* weight);

// Returns the rows that the query spreads to, those of y first, and their scores in f.
std::vector<int64_t> spread(const Edges& S, const Spread& how, const int64_t* rows, const double* y, size_t count,
                            std::vector<double>& f);

}  // namespace logt
