// What the files of the Python bindings share: array types, and the kernels of the instruction set in use.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <string>

#include "kernels.hpp"
#include "lists.hpp"

namespace nb = nanobind;
using namespace nb::literals;

// An argument that is an array: never converted, as a kernel would read or fill a copy.
inline auto operator""_arr(const char* name, size_t) { return nb::arg(name).noconvert(); }

template <typename T, size_t Dims>
using In = nb::ndarray<const T, nb::ndim<Dims>, nb::c_contig, nb::device::cpu>;
template <typename T, size_t Dims>
using Out = nb::ndarray<T, nb::ndim<Dims>, nb::c_contig, nb::device::cpu>;
using Any = nb::ndarray<nb::ro, nb::ndim<2>, nb::c_contig, nb::device::cpu>;  // items of one of two types: is_wide
using Free = nb::call_guard<nb::gil_scoped_release>;  // other threads run meanwhile

// Whether the items of an array are of the wider of the two types that it may have.
template <typename Narrow, typename Wide>
bool is_wide(const Any& array) {
    const bool wide = array.dtype() == nb::dtype<Wide>();
    if (!wide && array.dtype() != nb::dtype<Narrow>()) throw nb::type_error("an array has items of another type");
    return wide;
}

inline logt::NeighborLists lists_of(const In<uint16_t, 2>& low, const Any& high, const In<uint8_t, 2>& level) {
    return {low.shape(0), low.shape(1), low.data(), high.data(), is_wide<uint8_t, uint16_t>(high), level.data()};
}

struct Isa {
    std::string name;
    const logt::Table* table;
    const logt::ListTable* lists;
};
extern Isa current;  // module.cpp

void bind_lists(nb::module_& m);      // list_searcher.cpp
void bind_diffusion(nb::module_& m);  // diffusion.cpp
void bind_graph(nb::module_& m);      // graph.cpp
