// A set of numbers; with internal linkage, as all that is compiled per instruction set.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "best.hpp"

namespace logt {
namespace {

// By open addressing. Holds any number but NONE.
class Seen {
  public:
    static constexpr uint32_t NONE = 0xFFFFFFFF;

    Seen() : slots_(1024, NONE) {}

    bool insert(uint32_t value) {  // whether it is new
        if (2 * ++held_ > slots_.size()) grow();
        uint32_t& slot = find(value);
        if (slot == value) return --held_, false;
        slot = value;
        return true;
    }
    void clear() {
        std::fill(slots_.begin(), slots_.end(), NONE);
        held_ = 0;
    }

  private:
    uint32_t& find(uint32_t value) {
        const size_t mask = slots_.size() - 1;
        size_t at = value * 0x9E3779B97F4A7C15ull >> 32 & mask;
        while (slots_[at] != value && slots_[at] != NONE) at = (at + 1) & mask;
        return slots_[at];
    }
    void grow() {
        Vector<uint32_t> old(4 * slots_.size(), NONE);
        old.swap(slots_);
        for (uint32_t value : old)
            if (value != NONE) find(value) = value;
    }

    Vector<uint32_t> slots_;
    size_t held_ = 0;
};

}  // namespace
}  // namespace logt
