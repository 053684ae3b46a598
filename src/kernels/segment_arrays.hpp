// The arrays of a segment of the default index, as Python passes them.
#pragma once
#include "binding.hpp"
#include "lists.hpp"

namespace {

// Optional arrays are empty where there are none (lists.hpp).
struct SegmentArrays {
    In<int64_t, 1> starts;
    Any unit;
    In<int8_t, 2> weight;
    In<float, 1> scale, factor, bias;
    In<uint8_t, 2> sign_bits, low_bits;
    In<int8_t, 2> refinement;
    In<float, 1> refinement_scale;
    In<uint32_t, 1> row;
    In<int64_t, 1> ids;

    logt::ListSegment segment() const {
        logt::ListSegment s = {};
        s.rows = row.shape(0);
        s.entries = weight.shape(0);
        s.starts = starts.shape(0) ? starts.data() : nullptr;
        s.unit = unit.data();
        s.wide = is_wide<uint16_t, uint32_t>(unit);
        s.weight = weight.data();
        s.scale = scale.data();
        s.factor = factor.data();
        s.bias = bias.shape(0) ? bias.data() : nullptr;
        s.sign_bits = sign_bits.data();
        s.low_bits = low_bits.data();
        s.refinement = refinement.shape(0) ? refinement.data() : nullptr;
        s.refinement_scale = refinement_scale.data();
        s.row = row.data();
        s.ids = ids.data();
        return s;
    }
};

}  // namespace
