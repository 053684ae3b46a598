// The Python bindings of the kernels that compute a neighbor graph (graph/build.py).
#include <algorithm>
#include <numeric>
#include <thread>
#include <vector>

#include "binding.hpp"

namespace {

// The rows of each list: those of list j are rows[starts[j]..starts[j + 1]], increasing. lists: (rows, width), the lists
// of each row.
void group_rows(In<uint32_t, 2> lists, Out<int64_t, 1> starts, Out<uint32_t, 1> rows) {
    const size_t width = lists.shape(1), count = lists.shape(0) * width;
    int64_t* const next = starts.data() + 1;
    std::fill(starts.data(), starts.data() + starts.shape(0), int64_t{0});
    for (size_t e = 0; e < count; ++e) ++next[lists.data()[e]];
    std::partial_sum(starts.data(), starts.data() + starts.shape(0), starts.data());
    for (size_t e = count; e-- > 0;) rows.data()[--next[lists.data()[e]]] = static_cast<uint32_t>(e / width);
    std::copy(starts.data() + 1, starts.data() + starts.shape(0), starts.data());  // each is where its list starts now
    starts.data()[starts.shape(0) - 1] = static_cast<int64_t>(count);
}

// The k best of each row so far, which many threads add to: found and value, (rows, k), best first. Of equal values, those of
// nearby rows are first: so vectors that occur more than k times are neighbors of each other, not all of the same k. A thread
// that reads without the lock sees what is or was the last of a row, and a row only gets better.
class Lists {
  public:
    Lists(uint32_t* found, float* value, uint8_t* lock, size_t k) : found_(found), value_(value), lock_(lock), k_(k) {}

    float least(size_t row) const {
        float value;
        __atomic_load(value_ + row * k_ + k_ - 1, &value, __ATOMIC_ACQUIRE);
        return value;
    }
    // Returns `least` after that.
    float offer(size_t row, uint32_t other, float value) {
        const float last = least(row);  // before its row: that one is as new, or newer
        const uint32_t its = __atomic_load_n(found_ + row * k_ + k_ - 1, __ATOMIC_RELAXED);
        if (value < last || (value == last && !nearer(row, other, its))) return last;
        while (__atomic_test_and_set(lock_ + row, __ATOMIC_ACQUIRE)) std::this_thread::yield();
        insert(row, other, value);
        __atomic_clear(lock_ + row, __ATOMIC_RELEASE);
        return least(row);
    }

  private:
    static bool nearer(size_t row, uint32_t a, uint32_t b) {
        const auto distance = [row](size_t other) { return other < row ? row - other : other - row; };
        return distance(a) != distance(b) ? distance(a) < distance(b) : a < b;
    }
    void insert(size_t row, uint32_t other, float value) const {
        uint32_t* const found = found_ + row * k_;
        float* const best = value_ + row * k_;
        const auto before = [&](size_t at) { return best[at] > value || (best[at] == value && nearer(row, found[at], other)); };
        size_t place = k_;
        while (place > 0 && !before(place - 1)) --place;
        if (place == k_ || (best[place] == value && found[place] == other)) return;
        for (size_t at = k_ - 1; at > place; --at) set(found + at, best + at, found[at - 1], best[at - 1]);
        set(found + place, best + place, other, value);
    }
    static void set(uint32_t* found, float* best, uint32_t other, float value) {
        __atomic_store_n(found, other, __ATOMIC_RELAXED);
        __atomic_store(best, &value, __ATOMIC_RELEASE);
    }

    uint32_t* found_;
    float* value_;
    uint8_t* lock_;
    size_t k_;
};

// Offers each product of one of `rows` with one of a list, first + j, to the k best of both. products: (rows, columns) of
// codes; the scale of the row itself does not matter.
void keep_best(const int32_t* products, size_t columns, const float* scale, const uint32_t* rows, size_t count, size_t first,
               Lists& lists, std::vector<float>& least) {
    constexpr size_t TOGETHER = 16;  // most are not among the best: they are passed over together
    least.resize(columns);
    for (size_t j = 0; j < columns; ++j) least[j] = lists.least(first + j);
    const float* others = scale + first;
    for (size_t i = 0; i < count; ++i) {
        const int32_t* product = products + i * columns;
        const uint32_t row = rows[i];
        const float mine = scale[row];
        float own = lists.least(row);
        for (size_t c = 0; c < columns; c += TOGETHER) {
            const size_t stop = std::min(columns, c + TOGETHER);
            int above = 0;
            for (size_t j = c; j < stop; ++j) {
                const float p = static_cast<float>(product[j]);
                above |= (p * others[j] >= own) | (p * mine >= least[j]);
            }
            for (size_t j = c; above && j < stop; ++j) {
                const uint32_t other = static_cast<uint32_t>(first + j);
                const float p = static_cast<float>(product[j]);
                if (other == row) continue;
                if (p * others[j] >= own) own = lists.offer(row, other, p * others[j]);
                if (p * mine >= least[j]) least[j] = lists.offer(other, row, p * mine);
            }
        }
    }
}

// Compares rows with the lists that each probes. lists: (lists + 1), where each list of rows starts. starts, rows: those that
// probe list j are offset + rows[starts[j]..starts[j + 1]]. The lists are taken from `begin` on: threads that begin at
// different ones do not wait for each other. lock: one byte per row.
void compare_lists(In<int8_t, 2> codes, In<float, 1> scale, In<int64_t, 1> lists, In<int64_t, 1> starts, In<uint32_t, 1> rows,
                   uint32_t offset, size_t begin, Out<uint32_t, 2> found, Out<float, 2> value, Out<uint8_t, 1> lock) {
    constexpr size_t ROWS = 64, COLUMNS = 256;  // of products at a time
    const size_t count = lists.shape(0) - 1, dim = codes.shape(1);
    Lists best(found.data(), value.data(), lock.data(), found.shape(1));
    std::vector<int32_t> products(ROWS * COLUMNS);
    std::vector<uint32_t> mine;
    std::vector<float> least;
    for (size_t n = 0; n < count; ++n) {
        const size_t j = (begin + n) % count;
        mine.assign(rows.data() + starts.data()[j], rows.data() + starts.data()[j + 1]);
        for (uint32_t& row : mine) row += offset;
        const size_t last = static_cast<size_t>(lists.data()[j + 1]);
        for (size_t first = static_cast<size_t>(lists.data()[j]); first < last && !mine.empty(); first += COLUMNS) {
            const size_t columns = std::min(COLUMNS, last - first);
            for (size_t i = 0; i < mine.size(); i += ROWS) {
                const size_t some = std::min(ROWS, mine.size() - i);
                current.table->byte_products(codes.data(), mine.data() + i, some, codes.data() + first * dim, columns, dim,
                                             products.data());
                keep_best(products.data(), columns, scale.data(), mine.data() + i, some, first, best, least);
            }
        }
    }
}

// The edges by which rows are compared: adjacent[i] are the first `forward` neighbors of row i, then as many rows as fit that
// have i among their first neighbors, those to which it is nearest first. What is new in `found` is new there, once.
void adjacent_rows(Out<uint32_t, 2> found, size_t forward, Out<uint32_t, 2> adjacent) {
    const size_t rows = found.shape(0), k = found.shape(1), width = adjacent.shape(1);
    std::fill(adjacent.data(), adjacent.data() + rows * width, logt::NO_ROW);
    std::vector<uint16_t> used(rows);
    const auto neighbor = [&](size_t i, size_t r) { return found.data()[i * k + r] & ~logt::NEW_ROW; };
    const auto known = [&](size_t i, size_t r) { return found.data()[i * k + r] != logt::NO_ROW; };
    for (size_t i = 0; i < rows; ++i)
        for (size_t r = 0; r < forward && known(i, r); ++r) adjacent.data()[i * width + used[i]++] = found.data()[i * k + r];
    for (size_t r = 0; r < forward; ++r)
        for (size_t i = 0; i < rows; ++i) {
            if (!known(i, r)) continue;
            const size_t j = neighbor(i, r);
            if (used[j] == width) continue;
            size_t mutual = 0;
            while (mutual < forward && neighbor(j, mutual) != i) ++mutual;
            if (mutual < forward) continue;
            const uint32_t mark = found.data()[i * k + r] & logt::NEW_ROW;
            adjacent.data()[j * width + used[j]++] = static_cast<uint32_t>(i) | mark;
        }
    for (uint32_t* f = found.data(); f < found.data() + rows * k; ++f)
        if (*f != logt::NO_ROW) *f &= ~logt::NEW_ROW;
}

size_t join_rows(In<int8_t, 2> codes, In<float, 1> scale, In<uint32_t, 2> adjacent, size_t first, Out<uint32_t, 2> found) {
    return current.table->join({codes.data(), scale.data(), codes.shape(1)}, adjacent.data(), adjacent.shape(1), first,
                               found.shape(0), found.shape(1), found.data());
}

// out[i][j] = X[i] . Y[j]
void byte_products(In<int8_t, 2> X, In<int8_t, 2> Y, Out<int32_t, 2> out) {
    current.table->byte_products(X.data(), nullptr, X.shape(0), Y.data(), Y.shape(0), X.shape(1), out.data());
}

// starts: empty if all units are compared
void nearest_units(In<int8_t, 2> X, In<float, 1> X_scale, In<int8_t, 2> Y, In<float, 1> Y_scale, In<float, 1> norm,
                   In<int64_t, 1> starts, In<uint32_t, 1> members, In<uint32_t, 2> lists, Out<uint32_t, 1> nearest,
                   Out<float, 1> value, Out<uint32_t, 2> unit, Out<float, 2> product, Out<int32_t, 1> counts) {
    const logt::UnitLists some = {starts.data(), members.data(), lists.data(), lists.shape(1)};
    current.table->nearest_units({X.data(), X_scale.data(), X.shape(1)}, X.shape(0),
                                 {{Y.data(), Y_scale.data(), Y.shape(1)}, norm.data(), Y.shape(0)},
                                 starts.shape(0) ? &some : nullptr,
                                 {nearest.data(), value.data(), unit.data(), product.data(), counts.data(), unit.shape(1)});
}

void similarities(In<int8_t, 2> codes, In<float, 1> scale, size_t first, Out<uint32_t, 2> found, Out<float, 2> out) {
    current.table->similarities({codes.data(), scale.data(), codes.shape(1)}, first, found.shape(0), found.shape(1),
                                found.data(), out.data());
}

}  // namespace

void bind_graph(nb::module_& m) {
    m.def("byte_products", byte_products, "X"_arr, "Y"_arr, "out"_arr, Free());
    m.def("nearest_units", nearest_units, "X"_arr, "X_scale"_arr, "Y"_arr, "Y_scale"_arr, "norm"_arr, "starts"_arr,
          "members"_arr, "lists"_arr, "nearest"_arr, "value"_arr, "unit"_arr, "product"_arr, "counts"_arr, Free());
    m.def("group_rows", group_rows, "lists"_arr, "starts"_arr, "rows"_arr, Free());
    m.def("compare_lists", compare_lists, "codes"_arr, "scale"_arr, "lists"_arr, "starts"_arr, "rows"_arr, "offset"_a,
          "begin"_a, "found"_arr, "value"_arr, "lock"_arr, Free());
    m.def("adjacent_rows", adjacent_rows, "found"_arr, "forward"_a, "adjacent"_arr, Free());
    m.def("join_rows", join_rows, "codes"_arr, "scale"_arr, "adjacent"_arr, "first"_a, "found"_arr, Free());
    m.def("similarities", similarities, "codes"_arr, "scale"_arr, "first"_a, "found"_arr, "out"_arr, Free());
}
