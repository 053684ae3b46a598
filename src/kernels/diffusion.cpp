// Diffusion on a neighbor graph. Plain loops over short lists: nothing here gains from an instruction set.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include "binding.hpp"
#include "neighbor_lists.hpp"

namespace logt {
namespace {

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

// The place of row i among the first neighbors of row j, `first` if it is not there.
size_t find_neighbor(const NeighborLists& lists, size_t first, size_t j, uint32_t i) {
    size_t a = 0;
    while (a < first && lists.neighbor(j, a) != i) ++a;
    return a;
}

// Rows -> places 0, 1, ...: open addressing, at most half full.
class RowMap {
  public:
    explicit RowMap(size_t most) : slots_(16) {
        while (slots_ < 2 * most) slots_ *= 2;
        row_.assign(slots_, -1);
        place_.resize(slots_);
    }
    // The place of a row, -1 if it has none.
    int32_t find(int32_t row) const {
        const size_t at = slot(row);
        return row_[at] < 0 ? -1 : place_[at];
    }
    // The place of a row; a new row gets the given one.
    int32_t insert(int32_t row, int32_t place) {
        const size_t at = slot(row);
        if (row_[at] < 0) row_[at] = row, place_[at] = place;
        return place_[at];
    }

  private:
    size_t slot(int32_t row) const {
        size_t at = static_cast<size_t>(row) * 0x9E3779B97F4A7C15ull >> 20;
        for (;; ++at) {
            at &= slots_ - 1;
            if (row_[at] == row || row_[at] < 0) return at;
        }
    }
    size_t slots_;
    std::vector<int32_t> row_, place_;
};

// The rows that edges lead to from near[first..], without those in near, by row; at most `room`, those with the most weight.
std::vector<int64_t> next_front(const Edges& S, const Spread& how, const std::vector<int64_t>& near, size_t first,
                                size_t room) {
    struct Fresh {
        int64_t row;
        double strength;
    };
    std::vector<Fresh> fresh;
    size_t most = near.size();
    for (size_t p = first; p < near.size(); ++p) most += S.degree(static_cast<size_t>(near[p]));
    RowMap places(most);
    for (int64_t row : near) places.insert(static_cast<int32_t>(row), -1);
    for (size_t p = first; p < near.size(); ++p)
        S.each(static_cast<size_t>(near[p]), [&](uint32_t row, float weight) {
            if (how.visible && !how.visible[row]) return;
            const int32_t place = places.insert(static_cast<int32_t>(row), static_cast<int32_t>(fresh.size()));
            if (place < 0) return;
            if (static_cast<size_t>(place) == fresh.size()) fresh.push_back({row, 0.0});
            fresh[place].strength += weight;
        });
    if (fresh.size() > room) {
        std::nth_element(fresh.begin(), fresh.begin() + static_cast<ptrdiff_t>(room), fresh.end(), [](auto& a, auto& b) {
            return a.strength != b.strength ? a.strength > b.strength : a.row < b.row;
        });
        fresh.resize(room);
    }
    std::vector<int64_t> rows;
    for (const Fresh& one : fresh) rows.push_back(one.row);
    std::sort(rows.begin(), rows.end());
    return rows;
}

// The edges among a few rows, numbered by their places.
struct Subgraph {
    std::vector<int32_t> starts, column;
    std::vector<float> weight;

    Subgraph(const Edges& S, const std::vector<int64_t>& rows) : starts{0} {
        RowMap places(rows.size());
        for (size_t p = 0; p < rows.size(); ++p) places.insert(static_cast<int32_t>(rows[p]), static_cast<int32_t>(p));
        for (int64_t row : rows) {
            S.each(static_cast<size_t>(row), [&](uint32_t other, float value) {
                const int32_t place = places.find(static_cast<int32_t>(other));
                if (place < 0) return;
                column.push_back(place);
                weight.push_back(value);
            });
            starts.push_back(static_cast<int32_t>(column.size()));
        }
        use_smaller_weights();
    }

    // Makes the matrix symmetric: each edge is there in both directions, maybe with two similarities. One that is not, which
    // only lists that name a row twice can cause, counts nothing.
    void use_smaller_weights() {
        for (int32_t i = 0; i + 1 < static_cast<int32_t>(starts.size()); ++i)
            for (int32_t e = starts[i]; e < starts[i + 1]; ++e) {
                const auto first = column.begin() + starts[column[e]], end = column.begin() + starts[column[e] + 1];
                const auto back = std::find(first, end, i);
                const float other = back == end ? 0 : weight[static_cast<size_t>(back - column.begin())];
                weight[e] = std::min(weight[e], other);
            }
    }

    // out = p - alpha S p; returns p . out
    double apply(double alpha, const std::vector<double>& p, std::vector<double>& out) const {
        double product = 0;
        for (size_t i = 0; i < p.size(); ++i) {
            double even = 0, odd = 0;  // two sums: an addition need not wait for the one before
            int32_t e = starts[i];
            for (; e + 1 < starts[i + 1]; e += 2) even += weight[e] * p[column[e]], odd += weight[e + 1] * p[column[e + 1]];
            const double sum = even + odd + (e < starts[i + 1] ? weight[e] * p[column[e]] : 0.0);
            out[i] = p[i] - alpha * sum;
            product += p[i] * out[i];
        }
        return product;
    }
};

double square(const std::vector<double>& v) { return std::inner_product(v.begin(), v.end(), v.begin(), 0.0); }

// f = (I - alpha S)^-1 y by conjugate gradients; S is symmetric and its eigenvalues are at most 1. r: y on entry.
std::vector<double> solve(const Subgraph& S, const Spread& how, std::vector<double> r) {
    const size_t n = r.size();
    std::vector<double> f(n), p = r, Ap(n);
    double left = square(r);
    const double enough = how.precision * how.precision * left;
    for (size_t step = 0; step < how.steps && left > enough; ++step) {
        const double length = left / S.apply(how.alpha, p, Ap);
        for (size_t i = 0; i < n; ++i) f[i] += length * p[i], r[i] -= length * Ap[i];
        const double before = left;
        left = square(r);
        for (size_t i = 0; i < n; ++i) p[i] = r[i] + left / before * p[i];
    }
    for (double& value : f) value = std::max(value, 0.0);
    return f;
}

// Fills the bits and gains of the edges among the `first` neighbors, as in graph/diffusion.py. above: the similarity of
// each level less the background; edges need more than 0. least: the smallest local scale.
void find_mutual(const NeighborLists& lists, size_t first, const double* above, double least, uint8_t* mutual, float* gain) {
    const size_t width = (first + 7) / 8;
    const auto cube = [](double value) { return value * value * value; };
    std::vector<double> local(lists.rows);  // the part of the gains that comes from the nearest neighbor
    for (size_t i = 0; i < lists.rows; ++i) {
        const double nearest = lists.k && lists.level[i * lists.k] ? above[lists.level[i * lists.k]] : 0.0;
        local[i] = 1 / std::sqrt(cube(std::max(nearest, least)));
    }
    std::fill(mutual, mutual + lists.rows * width, uint8_t{0});
    for (size_t i = 0; i < lists.rows; ++i) {
        double degree = 0;
        for (size_t a = 0; a < first; ++a) {
            const uint32_t j = lists.neighbor(i, a);
            if (j == NeighborLists::NONE) break;
            const double there = above[lists.level[i * lists.k + a]];
            if (!(there > 0)) continue;
            const size_t place = find_neighbor(lists, first, j, static_cast<uint32_t>(i));
            const double back = place < first ? above[lists.level[j * lists.k + place]] : 0.0;
            if (!(back > 0)) continue;
            mutual[i * width + a / 8] |= static_cast<uint8_t>(1 << a % 8);
            degree += cube(std::min(there, back)) * local[i] * local[j];
        }
        gain[i] = static_cast<float>(local[i] / std::sqrt(std::max(degree, 1.0)));
    }
}

// Returns the rows that the query spreads to, those of y first, and their scores in f.
std::vector<int64_t> spread(const Edges& S, const Spread& how, const int64_t* rows, const double* y, size_t count,
                            std::vector<double>& f) {
    std::vector<int64_t> near(rows, rows + count);
    size_t first = 0;
    for (size_t hop = 0; hop < how.hops && near.size() < how.nodes; ++hop) {
        const std::vector<int64_t> front = next_front(S, how, near, first, how.nodes - near.size());
        if (front.empty()) break;
        first = near.size();
        near.insert(near.end(), front.begin(), front.end());
    }
    std::vector<double> start(y, y + count);
    start.resize(near.size());
    f = solve(Subgraph(S, near), how, std::move(start));
    return near;
}

}  // namespace
}  // namespace logt

// ------------------------------------------------------------------------------------------- Python bindings

namespace {

void find_mutual(In<uint16_t, 2> low, Any high, In<uint8_t, 2> level, size_t first, In<double, 1> above, double least,
                 Out<uint8_t, 2> mutual, Out<float, 1> gain) {
    logt::find_mutual(lists_of(low, high, level), first, above.data(), least, mutual.data(), gain.data());
}

// visible: one per row, or empty for all. nodes, f: at least max(limit, rows) places. Returns how many were filled.
size_t spread(In<uint16_t, 2> low, Any high, In<uint8_t, 2> level, In<uint8_t, 2> mutual, In<float, 1> gain,
              In<double, 1> cube, In<int64_t, 1> rows, In<double, 1> y, In<bool, 1> visible, double alpha, size_t hops,
              size_t limit, size_t steps, double precision, Out<int64_t, 1> nodes, Out<double, 1> f) {
    const uint8_t* seen = visible.shape(0) ? reinterpret_cast<const uint8_t*>(visible.data()) : nullptr;
    const logt::Edges S = {lists_of(low, high, level), mutual.shape(1), mutual.data(), gain.data(), cube.data()};
    const logt::Spread how = {alpha, hops, limit, steps, precision, seen};
    std::vector<double> scores;
    const std::vector<int64_t> near = logt::spread(S, how, rows.data(), y.data(), rows.shape(0), scores);
    std::copy(near.begin(), near.end(), nodes.data());
    std::copy(scores.begin(), scores.end(), f.data());
    return near.size();
}

}  // namespace

void bind_diffusion(nb::module_& m) {
    m.def("find_mutual", find_mutual, "low"_arr, "high"_arr, "level"_arr, "first"_a, "above"_arr, "least"_a, "mutual"_arr,
          "gain"_arr, Free());
    m.def("spread", spread, "low"_arr, "high"_arr, "level"_arr, "mutual"_arr, "gain"_arr, "cube"_arr, "rows"_arr, "y"_arr,
          "visible"_arr, "alpha"_a, "hops"_a, "limit"_a, "steps"_a, "precision"_a, "nodes"_arr, "f"_arr, Free());
}
