// The units that are nearest to some rows. Compiled once per instruction set.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>

#include "best.hpp"
#include "byte_products.hpp"
#include "bytes.hpp"
#include "kernels.hpp"

namespace logt {
namespace {

// What is known of one row: the nearest unit, and the k with the highest products, best first.
class NearUnits {
  public:
    NearUnits(const NearestUnits& out, size_t row, float scale)
        : out_(out), row_(row), unit_(out.unit + row * out.k), product_(out.product + row * out.k), scale_(scale),
          held_(static_cast<size_t>(out.counts[row])), value_(out.value[row]), nearest_(out.nearest[row]) {
        if (!out.k) least_ = INF;
        else if (held_ == out.k) least_ = product_[held_ - 1];
    }
    ~NearUnits() {
        if (held_ && std::find(unit_, unit_ + held_, nearest_) == unit_ + held_)
            unit_[held_ - 1] = nearest_, product_[held_ - 1] = its_product_;
        out_.nearest[row_] = nearest_;
        out_.value[row_] = value_;
        out_.counts[row_] = static_cast<int32_t>(held_);
    }

    // products[j]: of the codes of the row and of the unit ids[j]; scale, norm: of that unit
    void offer(const int32_t* products, const uint32_t* ids, const float* scale, const float* norm, size_t count) {
        constexpr size_t TOGETHER = 16;  // most are not among the best: they are passed over together
        for (size_t c = 0; c < count; c += TOGETHER) {
            const size_t stop = std::min(count, c + TOGETHER);
            int above = 0;
            for (size_t j = c; j < stop; ++j) {
                const float p = static_cast<float>(products[j]) * scale[j] * scale_;
                above |= (p > least_) | ((p - norm[j] / 2) * norm[j] > value_);
            }
            for (size_t j = c; above && j < stop; ++j) {
                const float p = static_cast<float>(products[j]) * scale[j] * scale_, value = (p - norm[j] / 2) * norm[j];
                if (value > value_) value_ = value, nearest_ = ids[j], its_product_ = p;
                if (p > least_) insert(ids[j], p);
            }
        }
    }

  private:
    void insert(uint32_t unit, float product) {
        if (known_ && std::find(unit_, unit_ + held_, unit) != unit_ + held_) return;
        size_t at = held_ < out_.k ? held_++ : held_ - 1;
        for (; at > 0 && product_[at - 1] < product; --at) product_[at] = product_[at - 1], unit_[at] = unit_[at - 1];
        product_[at] = product, unit_[at] = unit;
        if (held_ == out_.k) least_ = product_[held_ - 1];
    }

    const NearestUnits& out_;
    size_t row_;
    uint32_t* unit_;
    float* product_;
    float scale_;
    size_t held_;
    const bool known_ = held_ > 0;  // from an earlier call, which may have compared the same units
    float value_, its_product_ = 0, least_ = -INF;
    uint32_t nearest_;
};

void compare_with_all(const ByteRows& X, size_t count, const UnitRows& Y, const NearestUnits& out) {
    constexpr size_t TOGETHER = 4;
    Vector<int32_t> products(TOGETHER * Y.count);
    Vector<uint32_t> ids(Y.count);
    std::iota(ids.begin(), ids.end(), 0u);
    for (size_t i = 0; i < count; i += TOGETHER) {
        const size_t some = std::min(TOGETHER, count - i);
        byte_products(X.codes + i * X.dim, nullptr, some, Y.rows.codes, Y.count, X.dim, products.data());
        for (size_t r = 0; r < some; ++r) {
            NearUnits(out, i + r, X.scale[i + r]).offer(products.data() + r * Y.count, ids.data(), Y.rows.scale, Y.norm, Y.count);
        }
    }
}

void nearest_units(const ByteRows& X, size_t count, const UnitRows& Y, const UnitLists* lists, const NearestUnits& out) {
    if (!lists) return compare_with_all(X, count, Y, out);
    constexpr size_t TOGETHER = 4;
    Vector<uint32_t> ids;
    Vector<int32_t> products;
    Vector<float> scale, norm;
    Vector<uint64_t> seen(Y.count, 0);  // 1 + the row that a unit was compared with last
    for (size_t i = 0; i < count; ++i) {
        ids.clear();
        for (const uint32_t *j = lists->list + i * lists->width, *last = j + lists->width; j < last; ++j)
            for (int64_t at = lists->starts[*j]; at < lists->starts[*j + 1]; ++at)
                if (std::exchange(seen[lists->unit[at]], i + 1) != i + 1) ids.push_back(lists->unit[at]);
        const size_t found = ids.size();
        products.resize(found + TOGETHER), scale.resize(found), norm.resize(found);
        const int8_t* const row[1] = {X.codes + i * X.dim};
        for (size_t c = 0; c < found; c += TOGETHER) {
            const int8_t* column[TOGETHER];
            for (size_t b = 0; b < TOGETHER; ++b) column[b] = Y.rows.codes + ids[std::min(c + b, found - 1)] * X.dim;
            int32_t dots[1][TOGETHER];
            byte_dots<1, TOGETHER>(row, column, X.dim, dots);
            std::copy_n(dots[0], TOGETHER, products.data() + c);
        }
        for (size_t j = 0; j < found; ++j) scale[j] = Y.rows.scale[ids[j]], norm[j] = Y.norm[ids[j]];
        NearUnits(out, i, X.scale[i]).offer(products.data(), ids.data(), scale.data(), norm.data(), found);
    }
}

}  // namespace
}  // namespace logt
