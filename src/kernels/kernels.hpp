// The hot loops of logt. Arrays in, arrays out: no checks here, the callers in Python validate.
//
// kernels.cpp (the paper's methods and the neighbor graph) and lists.cpp (the default index) are compiled once per
// instruction set; each copy fills its table, and module.cpp picks one at run time.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace logt {

constexpr size_t RANKS = 16;  // entries of a row that are worked on together
constexpr size_t HEAD = 64;   // ranks below this are kept in blocks

// U by vector. Row i has `width` entries (unit number, weight) by falling |weight|; pads have weight 0. The first 64
// ranks are kept in blocks of 16: ranks 0..15 of all rows, then 16..31 of all rows, and so on; after them the rest of
// each row. So a pass over the first entries of all rows reads memory in one stream, and one row is a few pieces.
template <typename Unit, typename Weight>
struct Entries {
    const Unit* unit;
    const Weight* weight;
    size_t rows, width;

    // where the entries of `row` from rank `first` (a multiple of 16) on begin
    size_t at(size_t row, size_t first) const {
        if (first >= HEAD) return HEAD * rows + row * (width - HEAD) + first - HEAD;
        return first * rows + row * std::min(RANKS, width - first);
    }
};

// How one segment estimates: s_i = scale_i * sum_t weight[i][t] * c[unit[i][t]] + bias_i, over the first entries(i).
template <typename Unit, typename Weight>
struct Codes {
    Entries<Unit, Weight> U;
    const float* scale;      // one per row
    const float* bias;       // one per row, or null for 0
    const uint16_t* length;  // entries of U0 per row, or null for all

    size_t entries(size_t row) const { return length ? length[row] : U.width; }
};

// A short U0 once more, for one query at a time: rows by rising length, sixteen side by side. Rank t of group g is
// entry[(starts[g] + t) * 16 + l], l being the lane of row[g * 16 + l]; pads have weight 0, and those at the end row 0.
template <typename Unit, typename Weight>
struct Prefixes {
    const uint32_t* row;
    const int64_t* starts;
    const Unit* unit;
    const Weight* weight;
    size_t rows;
};

template <typename Unit, typename Weight>
struct Decoder {
    // The R <= rows best rows for one query, in no order, equal scores by row; c: one measurement per unit.
    void (*one)(const Codes<Unit, Weight>&, const float* c, size_t R, float* scores, int32_t* rows);
    // The same by a copy of U0.
    void (*decode_prefix)(const Prefixes<Unit, Weight>&, const float* scale, const float* bias, const float* c, size_t R,
                  float* scores, int32_t* rows);
    // The same for 16 queries at once; c: (units, 16). Lanes from `queries` on are ignored. Out: (queries, R).
    void (*tile)(const Codes<Unit, Weight>&, const float* c, size_t queries, size_t R, float* scores, int32_t* rows);
    // Adds what the entries after U0 contribute to the scores of `count` rows (a negative row is skipped).
    void (*refine)(const Codes<Unit, Weight>&, const float* c, const int32_t* rows, size_t count, float* scores);
    // out[b] = sum_t weight[b][t] * Y[unit[b][t]] for each row b of the codes
    void (*reconstruct)(const Entries<Unit, Weight>&, const float* Y, size_t dim, float* out);
};

// Row i is scale[i] * codes[i]; codes: (rows, dim)
struct ByteRows {
    const int8_t* codes;
    const float* scale;
    size_t dim;
};
// Units: vectors of norm 1, as bytes, times `norm`.
struct UnitRows {
    ByteRows rows;
    const float* norm;
    size_t count;
};
// Row i is compared with the units of `width` lists: list j is unit[starts[j]..starts[j + 1]]. list: (rows, width)
struct UnitLists {
    const int64_t* starts;
    const uint32_t* unit;
    const uint32_t* list;
    size_t width;
};
// Of each row: the nearest unit and its value, x . y - |y|^2 / 2; and `counts` <= k units, (rows, k), with the highest products
// with units scaled to norm 1, best first. The nearest is one of them, if need be the last. What is there before is kept if
// nothing better is found.
struct NearestUnits {
    uint32_t* nearest;
    float* value;
    uint32_t* unit;
    float* product;
    int32_t* counts;
    size_t k;
};
constexpr uint32_t NO_ROW = 0xFFFFFFFF;
constexpr uint32_t NEW_ROW = 0x80000000;  // added to the number of a row: its neighbors were not read yet

struct Table {
    // Grows `count` units over one chunk of `size` vectors. A: (size, size) costs of putting two together.
    // Unit u starts with vector u; then all units pick in turn, again and again. out[i]: unit of vector i.
    void (*grow_units)(const float* A, size_t size, const int32_t* sizes, size_t count, bool sum, int32_t* out);
    // out[b][j] = X[b] . A[support[b][j]] for j < counts[b]; support and out: (rows, capacity)
    void (*correlate)(const float* X, const float* A, size_t dim, const int32_t* support, const int32_t* counts,
                      size_t rows, size_t capacity, float* out);
    // Orthogonal matching pursuit on unit-norm atoms, one support per row, corr as `correlate` gives it; see kernels.cpp.
    // The solutions after each of `parts` increasing lengths are next to each other in a row of out. first[b], if not
    // negative, is the atom that row b chooses first and lists first.
    void (*omp)(const float* gram, size_t units, const float* corr, const int32_t* support, const int32_t* counts,
                const int32_t* first, size_t rows, size_t capacity, const int32_t* lengths, size_t parts, const float* rescale,
                uint32_t* out_unit, float* out_weight);
    // The rows `first`.. of U'U and of U'X, for U given by row as (unit, weight) entries (rows, width); pads have weight 0.
    // A: (count, units), B: (count, dim); both are added to.
    void (*normal_rows)(const uint32_t* unit, const float* weight, size_t rows, size_t width, const float* X, size_t dim,
                        size_t units, size_t first, size_t count, float* A, float* B);
    // out[i][c] = X[rows[i]] . Y[c], of vectors of `dim` bytes; rows: or null: the first `count`. out: (count, columns)
    void (*byte_products)(const int8_t* X, const uint32_t* rows, size_t count, const int8_t* Y, size_t columns, size_t dim,
                          int32_t* out);
    // Finds the units nearest to each of the first `count` rows: among all, or among those of some lists, if these are not null.
    void (*nearest_units)(const ByteRows&, size_t count, const UnitRows&, const UnitLists*, const NearestUnits& out);
    // Compares `count` rows from `first` on with what a new edge leads to, or two edges of which one is new, and keeps the k
    // best of each, nearest first. adjacent: (rows, width), the edges. found: (count, k); both end in NO_ROW. Returns how
    // many of `found` are new.
    size_t (*join)(const ByteRows&, const uint32_t* adjacent, size_t width, size_t first, size_t count, size_t k,
                   uint32_t* found);
    // The products of these rows with those that were found, from -1 to 1, and 0 for none. What was new no longer is.
    void (*similarities)(const ByteRows&, size_t first, size_t count, size_t k, uint32_t* found, float* out);
    Decoder<uint16_t, int8_t> u16i8;
    Decoder<uint16_t, float> u16f32;
    Decoder<uint32_t, int8_t> u32i8;
    Decoder<uint32_t, float> u32f32;
};

extern const Table table_baseline;
#ifdef LOGT_X86
extern const Table table_avx2;
extern const Table table_avx512;
extern const Table table_avx512vnni;
#endif
#ifdef LOGT_ARM
extern const Table table_dotprod;
#endif

}  // namespace logt
