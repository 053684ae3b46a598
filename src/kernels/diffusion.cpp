// Diffusion on a neighbor graph. Plain loops over short lists: nothing here gains from an instruction set.
#include "diffusion.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "binding.hpp"

namespace logt {
namespace {

// Calls edge(j, value) for each neighbor j of row i that has i as a neighbor too; value: the smaller similarity, less b.
template <typename Edge>
void each_mutual(const NearestLists& lists, float b, size_t i, Edge edge) {
    const int32_t* mine = lists.neighbor + i * lists.width;
    for (size_t a = 0; a < lists.width; ++a) {
        const float there = lists.similarity[i * lists.width + a] - b;
        if (mine[a] < 0 || !(there > 0)) continue;
        const size_t j = static_cast<size_t>(mine[a]);
        const int32_t* other = lists.neighbor + j * lists.width;
        const int32_t* found = std::find(other, other + lists.width, static_cast<int32_t>(i));
        if (found == other + lists.width) continue;
        const float back = lists.similarity[j * lists.width + static_cast<size_t>(found - other)] - b;
        if (back > 0) edge(mine[a], std::min(there, back));
    }
}

// Rows -> places 0, 1, ...: open addressing, at most half full.
class Places {
  public:
    explicit Places(size_t most) : slots_(16) {
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
    size_t edges = near.size();
    for (size_t p = first; p < near.size(); ++p) edges += S.starts[near[p] + 1] - S.starts[near[p]];
    Places places(edges);
    for (int64_t row : near) places.insert(static_cast<int32_t>(row), -1);
    struct Fresh {
        int64_t row;
        double strength;
    };
    std::vector<Fresh> fresh;
    for (size_t p = first; p < near.size(); ++p)
        for (int64_t e = S.starts[near[p]]; e < S.starts[near[p] + 1]; ++e) {
            const int32_t row = S.column[e];
            if (how.visible && !how.visible[row]) continue;
            const int32_t place = places.insert(row, static_cast<int32_t>(fresh.size()));
            if (place < 0) continue;
            if (static_cast<size_t>(place) == fresh.size()) fresh.push_back({row, 0.0});
            fresh[place].strength += S.weight[e];
        }
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
        Places places(rows.size());
        size_t most = 0;
        for (size_t p = 0; p < rows.size(); ++p) {
            places.insert(static_cast<int32_t>(rows[p]), static_cast<int32_t>(p));
            most += S.starts[rows[p] + 1] - S.starts[rows[p]];
        }
        column.reserve(most);
        weight.reserve(most);
        for (int64_t row : rows) {
            for (int64_t e = S.starts[row]; e < S.starts[row + 1]; ++e) {
                const int32_t place = places.find(S.column[e]);
                if (place < 0) continue;
                column.push_back(place);
                weight.push_back(S.weight[e]);
            }
            starts.push_back(static_cast<int32_t>(column.size()));
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

}  // namespace

void count_mutual(const NearestLists& lists, float b, int64_t* counts) {
    for (size_t i = 0; i < lists.rows; ++i) {
        int64_t count = 0;
        each_mutual(lists, b, i, [&](int32_t, float) { ++count; });
        counts[i] = count;
    }
}

void fill_mutual(const NearestLists& lists, float b, float least, const int64_t* starts, int32_t* column, float* weight) {
    const auto scale = [&](size_t i) {  // of the nearest neighbor
        const bool any = lists.width && lists.neighbor[i * lists.width] >= 0;
        return std::max(any ? lists.similarity[i * lists.width] - b : 0.0f, least);
    };
    std::vector<double> root(lists.rows);
    for (size_t i = 0; i < lists.rows; ++i) {
        int64_t e = starts[i];
        double degree = 0;
        each_mutual(lists, b, i, [&](int32_t j, float value) {
            const double ratio = value / std::sqrt(static_cast<double>(scale(i)) * scale(static_cast<size_t>(j)));
            column[e] = j;
            weight[e] = static_cast<float>(ratio * ratio * ratio);
            degree += weight[e++];
        });
        root[i] = std::sqrt(std::max(degree, 1.0));
    }
    for (size_t i = 0; i < lists.rows; ++i)
        for (int64_t e = starts[i]; e < starts[i + 1]; ++e)
            weight[e] = static_cast<float>(weight[e] / (root[i] * root[static_cast<size_t>(column[e])]));
}

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

}  // namespace logt

// ----------------------------------------------------------------------------------------------- Python face

namespace {

logt::NearestLists lists_of(const In<int32_t, 2>& neighbors, const In<float, 2>& similarity) {
    return {neighbors.data(), similarity.data(), neighbors.shape(0), neighbors.shape(1)};
}

void count_mutual(In<int32_t, 2> neighbors, In<float, 2> similarity, float b, Out<int64_t, 1> counts) {
    logt::count_mutual(lists_of(neighbors, similarity), b, counts.data());
}

void fill_mutual(In<int32_t, 2> neighbors, In<float, 2> similarity, float b, float least, In<int64_t, 1> starts,
                 Out<int32_t, 1> columns, Out<float, 1> weights) {
    logt::fill_mutual(lists_of(neighbors, similarity), b, least, starts.data(), columns.data(), weights.data());
}

// visible: one per row, or empty for all. nodes, f: at least max(limit, rows) places. Returns how many were filled.
size_t spread(In<int64_t, 1> starts, In<int32_t, 1> columns, In<float, 1> weights, In<int64_t, 1> rows, In<double, 1> y,
              In<bool, 1> visible, double alpha, size_t hops, size_t limit, size_t steps, double precision,
              Out<int64_t, 1> nodes, Out<double, 1> f) {
    const uint8_t* seen = visible.shape(0) ? reinterpret_cast<const uint8_t*>(visible.data()) : nullptr;
    const logt::Spread how = {alpha, hops, limit, steps, precision, seen};
    std::vector<double> scores;
    const std::vector<int64_t> near =
        logt::spread({starts.data(), columns.data(), weights.data()}, how, rows.data(), y.data(), rows.shape(0), scores);
    std::copy(near.begin(), near.end(), nodes.data());
    std::copy(scores.begin(), scores.end(), f.data());
    return near.size();
}

}  // namespace

void bind_diffusion(nb::module_& m) {
    m.def("count_mutual", count_mutual, "neighbors"_a, "similarity"_a, "b"_a, "counts"_a, Free());
    m.def("fill_mutual", fill_mutual, "neighbors"_a, "similarity"_a, "b"_a, "least"_a, "starts"_a, "columns"_a, "weights"_a,
          Free());
    m.def("spread", spread, "starts"_a, "columns"_a, "weights"_a, "rows"_a, "y"_a, "visible"_a, "alpha"_a, "hops"_a,
          "limit"_a, "steps"_a, "precision"_a, "nodes"_a, "f"_a, Free());
}
