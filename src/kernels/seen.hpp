// Sets of numbers; with internal linkage, as all that is compiled per instruction set.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

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

// A set of numbers below a limit, as bits.
class Bits {
  public:
    explicit Bits(size_t limit) : words_(limit / 64 + 1) { std::fill_n(words_.data, limit / 64 + 1, uint64_t{0}); }

    bool insert(size_t value) {  // whether it is new
        const uint64_t bit = uint64_t{1} << value % 64;
        return !(std::exchange(words_[value / 64], words_[value / 64] | bit) & bit);
    }

  private:
    Buffer<uint64_t> words_;
};

// A set of numbers below a limit: a bit for each, unless these are so many that clearing them takes long.
class SeenBelow {
  public:
    explicit SeenBelow(size_t limit) : few_(limit <= MOST), bits_(few_ ? limit : 0) {}

    bool insert(uint32_t value) { return few_ ? bits_.insert(value) : others_.insert(value); }  // whether it is new

  private:
    static constexpr size_t MOST = 1 << 18;
    bool few_;
    Bits bits_;
    Seen others_;
};

}  // namespace
}  // namespace logt
