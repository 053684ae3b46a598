// The Python bindings of the kernels, the choice of instruction set, and the small kernels that gain nothing from one.
#include "binding.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <type_traits>
#include <vector>

#if defined(LOGT_X86) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(LOGT_ARM) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#include "rows.hpp"

namespace {

// ------------------------------------------------------------------------------------------ instruction sets

#if defined(LOGT_X86)
// Whether the processor has matrix instructions, and the system lets this process use their registers.
bool has_matrix_unit() {
#if defined(__linux__)
    constexpr unsigned TILE = 1u << 24, INT8 = 1u << 25;
    constexpr long REQUEST_PERMISSION = 0x1023, TILE_DATA = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
    unsigned a, b, c, d;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || ~d & (TILE | INT8)) return false;
    return syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
#else
    return false;
#endif
}
#endif

std::vector<Isa> supported() {
    std::vector<Isa> found = {{"baseline", &logt::table_baseline, &logt::lists_baseline}};
#if defined(LOGT_X86)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        found.push_back({"avx2", &logt::table_avx2, &logt::lists_avx2});
        if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
            __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq")) {
            found.push_back({"avx512", &logt::table_avx512, &logt::lists_avx512});
            if (__builtin_cpu_supports("avx512vnni")) {
                found.push_back({"avx512vnni", &logt::table_avx512vnni, &logt::lists_avx512vnni});
                if (has_matrix_unit()) found.push_back({"amx", &logt::table_avx512vnni, &logt::lists_amx});
            }
        }
    }
#elif defined(LOGT_ARM) && defined(__linux__)
    if (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) found.push_back({"dotprod", &logt::table_dotprod, &logt::lists_dotprod});
#elif defined(LOGT_ARM) && defined(__APPLE__)
    found.push_back({"dotprod", &logt::table_dotprod, &logt::lists_dotprod});  // all processors of macOS on ARM have it
#endif
    return found;
}

}  // namespace

Isa current = supported().back();

namespace {

void use_instruction_set(const std::string& name) {
    for (const Isa& isa : supported())
        if (isa.name == name) {
            current = isa;
            return;
        }
    throw std::invalid_argument("this processor has no instruction set '" + name + "'");
}

// The kernels for these types.
template <typename Unit, typename Weight>
const logt::Decoder<Unit, Weight>& decoder() {
    const logt::Table& table = *current.table;
    if constexpr (std::is_same_v<Unit, uint16_t> && std::is_same_v<Weight, int8_t>) return table.u16i8;
    else if constexpr (std::is_same_v<Unit, uint16_t>) return table.u16f32;
    else if constexpr (std::is_same_v<Weight, int8_t>) return table.u32i8;
    else return table.u32f32;
}

// ------------------------------------------------------------------------------------------------- offline

void grow_units(In<float, 2> A, In<int32_t, 1> sizes, bool sum, Out<int32_t, 1> out) {
    current.table->grow_units(A.data(), A.shape(0), sizes.data(), sizes.shape(0), sum, out.data());
}

// S1 of each row: the units of all vectors that share a unit with it, in rising order. counts[b] <= out.shape(1).
void first_order(In<int32_t, 2> units, In<int64_t, 1> offsets, In<int32_t, 1> members, size_t first,
                 Out<int32_t, 2> out, Out<int32_t, 1> counts) {
    const size_t m = units.shape(1), capacity = out.shape(1);
    std::vector<size_t> seen(offsets.shape(0) - 1, SIZE_MAX);
    for (size_t b = 0; b < out.shape(0); ++b) {
        int32_t* mine = out.data() + b * capacity;
        int32_t count = 0;
        for (size_t r = 0; r < m; ++r) {
            const int32_t unit = units.data()[(first + b) * m + r];
            for (int64_t at = offsets.data()[unit]; at < offsets.data()[unit + 1]; ++at)
                for (size_t s = 0; s < m; ++s) {
                    const int32_t other = units.data()[members.data()[at] * m + s];
                    if (seen[other] == b) continue;
                    seen[other] = b;
                    mine[count++] = other;
                }
        }
        std::sort(mine, mine + count);
        counts.data()[b] = count;
    }
}

void correlate(In<float, 2> X, In<float, 2> A, In<int32_t, 2> support, In<int32_t, 1> counts, Out<float, 2> out) {
    current.table->correlate(X.data(), A.data(), X.shape(1), support.data(), counts.data(), support.shape(0),
                             support.shape(1), out.data());
}

void omp_path(In<float, 2> gram, In<float, 2> corr, In<int32_t, 2> support, In<int32_t, 1> counts, In<int32_t, 1> first,
              In<float, 1> rescale, In<int32_t, 1> lengths, Out<uint32_t, 2> unit, Out<float, 2> weight) {
    current.table->omp(gram.data(), gram.shape(0), corr.data(), support.data(), counts.data(),
                       first.shape(0) ? first.data() : nullptr, support.shape(0),
                       support.shape(1), lengths.data(), lengths.shape(0), rescale.data(), unit.data(), weight.data());
}

// unit, weight: (rows, width); X: (rows, dim); A: (count, units) and B: (count, dim) are added to
void normal_rows(In<uint32_t, 2> unit, In<float, 2> weight, In<float, 2> X, size_t first, Out<float, 2> A,
                 Out<float, 2> B) {
    current.table->normal_rows(unit.data(), weight.data(), unit.shape(0), unit.shape(1), X.data(), X.shape(1),
                               A.shape(1), first, A.shape(0), A.data(), B.data());
}

// -------------------------------------------------------------------------------------------------- online

template <typename Unit, typename Weight>
logt::Codes<Unit, Weight> codes(const In<Unit, 1>& unit, const In<Weight, 1>& weight, const In<float, 1>& scale,
                                const In<float, 1>& bias, const In<uint16_t, 1>& length) {
    const size_t rows = scale.shape(0);
    return {{unit.data(), weight.data(), rows, unit.shape(0) / rows},
            scale.data(),
            bias.shape(0) ? bias.data() : nullptr,
            length.shape(0) ? length.data() : nullptr};
}

// unit, weight: (rows * width), in blocks of ranks; an empty bias or length means none. c: (units); scores, rows: (R)
template <typename Unit, typename Weight>
void decode_one(In<Unit, 1> unit, In<Weight, 1> weight, In<float, 1> scale, In<float, 1> bias, In<uint16_t, 1> length,
                In<float, 1> c, Out<float, 1> scores, Out<int32_t, 1> rows) {
    const auto U = codes(unit, weight, scale, bias, length);
    decoder<Unit, Weight>().one(U, c.data(), scores.shape(0), scores.data(), rows.data());
}

// The same by a copy of U0: row (groups * 16), starts (groups + 1), unit, weight (starts[groups] * 16)
template <typename Unit, typename Weight>
void decode_prefix(In<uint32_t, 1> row, In<int64_t, 1> starts, In<Unit, 1> unit, In<Weight, 1> weight, In<float, 1> scale,
                  In<float, 1> bias, In<float, 1> c, Out<float, 1> scores, Out<int32_t, 1> rows) {
    decoder<Unit, Weight>().decode_prefix({row.data(), starts.data(), unit.data(), weight.data(), scale.shape(0)}, scale.data(),
                                  bias.shape(0) ? bias.data() : nullptr, c.data(), scores.shape(0), scores.data(), rows.data());
}

// C: (units, 16); scores, rows: (queries, R), queries <= 16
template <typename Unit, typename Weight>
void decode_tile(In<Unit, 1> unit, In<Weight, 1> weight, In<float, 1> scale, In<float, 1> bias, In<uint16_t, 1> length,
                 In<float, 2> C, Out<float, 2> scores, Out<int32_t, 2> rows) {
    const auto U = codes(unit, weight, scale, bias, length);
    decoder<Unit, Weight>().tile(U, C.data(), scores.shape(0), scores.shape(1), scores.data(), rows.data());
}

// C: (queries, units); rows, scores: (queries, R)
template <typename Unit, typename Weight>
void refine(In<Unit, 1> unit, In<Weight, 1> weight, In<float, 1> scale, In<uint16_t, 1> length, In<float, 2> C,
            In<int32_t, 2> rows, Out<float, 2> scores) {
    const size_t vectors = scale.shape(0), R = rows.shape(1);
    const logt::Codes<Unit, Weight> U = {{unit.data(), weight.data(), vectors, unit.shape(0) / vectors},
                                         scale.data(), nullptr, length.data()};
    for (size_t q = 0; q < rows.shape(0); ++q)
        decoder<Unit, Weight>().refine(U, C.data() + q * C.shape(1), rows.data() + q * R, R, scores.data() + q * R);
}

template <typename Unit, typename Weight>
void reconstruct(In<Unit, 1> unit, In<Weight, 1> weight, In<float, 2> Y, Out<float, 2> out) {
    const size_t rows = out.shape(0);
    decoder<Unit, Weight>().reconstruct({unit.data(), weight.data(), rows, rows ? unit.shape(0) / rows : 0}, Y.data(),
                                        Y.shape(1), out.data());
}

// Rows of V as codes * scale, the largest |component| of a row being 127
void to_int8(In<float, 2> V, Out<int8_t, 2> codes, Out<float, 1> scale) {
    constexpr size_t LANES = 16;
    constexpr float ROUND = 12582912.0f;  // 1.5 * 2^23: what is added to it is rounded to an integer
    const size_t dim = V.shape(1);
    for (size_t r = 0; r < V.shape(0); ++r) {
        const float* v = V.data() + r * dim;
        int8_t* code = codes.data() + r * dim;
        float lanes[LANES] = {};
        const auto widen = [&](size_t lane, float x) { lanes[lane] = lanes[lane] < std::fabs(x) ? std::fabs(x) : lanes[lane]; };
        size_t i = 0;
        for (; i + LANES <= dim; i += LANES)
            for (size_t l = 0; l < LANES; ++l) widen(l, v[i + l]);
        for (; i < dim; ++i) widen(0, v[i]);
        const float most = *std::max_element(lanes, lanes + LANES);
        const float step = most > 1e-30f ? most / 127 : 0;  // smaller values count as 0
        scale.data()[r] = step;
        if (step > 0)
            for (i = 0; i < dim; ++i) code[i] = static_cast<int8_t>(static_cast<int32_t>(v[i] / step + ROUND - ROUND));
        else std::fill_n(code, dim, int8_t{0});
    }
}

// order[q]: the positions of the best order.shape(1) of scores[q], by falling score, then by rising id; NaN is the last
void rank(In<float, 2> scores, In<int64_t, 2> id, Out<int64_t, 2> order) {
    struct Ranked {
        float score;
        int32_t at;
        int64_t id;
    };
    const size_t n = scores.shape(1), k = order.shape(1);
    std::vector<Ranked> list(n);
    const auto before = [](const Ranked& a, const Ranked& b) { return a.score != b.score ? a.score > b.score : a.id < b.id; };
    for (size_t q = 0; q < scores.shape(0); ++q) {
        for (size_t p = 0; p < n; ++p)
            list[p] = {scores.data()[q * n + p], static_cast<int32_t>(p), id.data()[q * n + p]};
        for (Ranked& r : list)
            if (std::isnan(r.score)) r.score = -std::numeric_limits<float>::infinity();
        if (k < n) std::nth_element(list.begin(), list.begin() + k, list.end(), before);
        std::sort(list.begin(), list.begin() + k, before);
        for (size_t p = 0; p < k; ++p) order.data()[q * k + p] = list[p].at;
    }
}

bool divide_by_norms(Out<float, 2> X, bool normalize, double least, double most, Out<double, 1> norms) {
    return logt::divide_by_norms(X.data(), X.shape(0), X.shape(1), normalize, least, most, norms.data());
}

// Whether the numbers are 0, 1, ... in any order.
bool is_permutation(In<uint32_t, 1> numbers) {
    const size_t count = numbers.shape(0);
    std::vector<uint64_t> seen(count / 64 + 1);
    for (const uint32_t* n = numbers.data(); n < numbers.data() + count; ++n) {
        if (*n >= count) return false;
        uint64_t& word = seen[*n / 64];
        const uint64_t bit = uint64_t{1} << *n % 64;
        if (word & bit) return false;
        word |= bit;
    }
    return true;
}

// One pass down each list. units: (queries, length, m), negative where a place is empty. Among the first `depth`, a
// vector none of whose units is claimed is kept and claims them; who has a claimed unit and was not kept is
// suppressed, wherever it stands. order[q]: the places of the others, counts[q] in number, then of the suppressed, each
// in their order.
void suppress(In<int64_t, 3> units, size_t depth, Out<int64_t, 2> order, Out<int64_t, 1> counts) {
    const size_t length = units.shape(1), m = units.shape(2);
    size_t slots = 16;
    while (slots < 2 * std::min(depth, length) * m) slots *= 2;
    std::vector<int64_t> claimed(slots);  // open addressing: unit numbers, -1 where free
    std::vector<int64_t> dropped;
    const auto slot = [&](int64_t unit) {
        size_t at = static_cast<size_t>(unit) * 0x9E3779B97F4A7C15ull >> 20;
        for (;; ++at) {
            at &= slots - 1;
            if (claimed[at] == unit || claimed[at] < 0) return at;
        }
    };
    for (size_t q = 0; q < units.shape(0); ++q) {
        std::fill(claimed.begin(), claimed.end(), -1);
        const auto suppressed = [&](const int64_t* mine) {
            return std::any_of(mine, mine + m, [&](int64_t u) { return u >= 0 && claimed[slot(u)] == u; });
        };
        dropped.clear();
        int64_t* next = order.data() + q * length;
        for (size_t place = 0; place < length; ++place) {
            const int64_t* mine = units.data() + (q * length + place) * m;
            if (suppressed(mine)) {
                dropped.push_back(static_cast<int64_t>(place));
                continue;
            }
            *next++ = static_cast<int64_t>(place);
            if (place < depth)
                for (size_t r = 0; r < m; ++r)
                    if (mine[r] >= 0) claimed[slot(mine[r])] = mine[r];
        }
        counts.data()[q] = static_cast<int64_t>(length - dropped.size());
        std::copy(dropped.begin(), dropped.end(), next);
    }
}

template <typename Unit, typename Weight>
void bind(nb::module_& m) {
    m.def("decode_one", decode_one<Unit, Weight>, "unit"_arr, "weight"_arr, "scale"_arr, "bias"_arr, "length"_arr,
          "c"_arr, "scores"_arr, "rows"_arr, Free());
    m.def("decode_prefix", decode_prefix<Unit, Weight>, "row"_arr, "starts"_arr, "unit"_arr, "weight"_arr, "scale"_arr,
          "bias"_arr, "c"_arr, "scores"_arr, "rows"_arr, Free());
    m.def("decode_tile", decode_tile<Unit, Weight>, "unit"_arr, "weight"_arr, "scale"_arr, "bias"_arr, "length"_arr,
          "C"_arr, "scores"_arr, "rows"_arr, Free());
    m.def("refine", refine<Unit, Weight>, "unit"_arr, "weight"_arr, "scale"_arr, "length"_arr, "C"_arr, "rows"_arr,
          "scores"_arr, Free());
    m.def("reconstruct", reconstruct<Unit, Weight>, "unit"_arr, "weight"_arr, "Y"_arr, "out"_arr, Free());
}

}  // namespace

NB_MODULE(_kernels, m) {
    nb::set_leak_warnings(false);  // an index that a thread still holds when Python ends is no leak
    m.doc() = "Compiled hot loops: arrays in, arrays out, nothing checked but types. For the stages, not for users.";
    m.def("instruction_sets", [] {
        std::vector<std::string> names;
        for (const Isa& isa : supported()) names.push_back(isa.name);
        return names;
    });
    m.def("instruction_set", [] { return current.name; });
    m.def("use_instruction_set", use_instruction_set, "name"_a);
    m.def("grow_units", grow_units, "A"_arr, "sizes"_arr, "sum"_a, "out"_arr, Free());
    m.def("first_order", first_order, "units"_arr, "offsets"_arr, "members"_arr, "first"_a, "out"_arr, "counts"_arr,
          Free());
    m.def("correlate", correlate, "X"_arr, "A"_arr, "support"_arr, "counts"_arr, "out"_arr, Free());
    m.def("omp_path", omp_path, "gram"_arr, "corr"_arr, "support"_arr, "counts"_arr, "first"_arr, "rescale"_arr,
          "lengths"_arr, "unit"_arr, "weight"_arr, Free());
    m.def("normal_rows", normal_rows, "unit"_arr, "weight"_arr, "X"_arr, "first"_a, "A"_arr, "B"_arr, Free());
    m.def("to_int8", to_int8, "V"_arr, "codes"_arr, "scale"_arr, Free());
    m.def("rank", rank, "scores"_arr, "id"_arr, "order"_arr, Free());
    m.def("divide_by_norms", divide_by_norms, "X"_arr, "normalize"_a, "least"_a, "most"_a, "norms"_arr, Free());
    m.def("is_permutation", is_permutation, "numbers"_arr, Free());
    m.def("suppress", suppress, "units"_arr, "depth"_a, "order"_arr, "counts"_arr, Free());
    bind<uint16_t, int8_t>(m);
    bind<uint16_t, float>(m);
    bind<uint32_t, int8_t>(m);
    bind<uint32_t, float>(m);
    bind_lists(m);
    bind_diffusion(m);
    bind_graph(m);
}
