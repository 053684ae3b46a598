// The R best of a stream, and aligned memory; with internal linkage, as all that is compiled per instruction set.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <utility>
#include <vector>

namespace logt {
namespace {

constexpr float INF = std::numeric_limits<float>::infinity();

// std::vector with internal linkage. Of the copies of std::vector<float>, the linker would keep one for all instruction sets.
template <typename T>
struct Allocator : std::allocator<T> {
    Allocator() = default;
    template <typename U>
    Allocator(const Allocator<U>&) {}
};
template <typename T>
using Vector = std::vector<T, Allocator<T>>;

// Memory that a thread uses again: large blocks would be mapped and unmapped by each query otherwise. Sizes are 64 << n.
class Blocks {
  public:
    static size_t size_class(size_t bytes) {
        size_t n = 0;
        while ((size_t{64} << n) < bytes) ++n;
        return n;
    }
    void* take(size_t n) {
        if (n < CLASSES && !free_[n].empty()) {
            void* const block = free_[n].back();
            free_[n].pop_back();
            return block;
        }
        void* const block = std::aligned_alloc(64, size_t{64} << n);
        if (!block) throw std::bad_alloc();
        return block;
    }
    void give(void* block, size_t n) noexcept {
        if (n < CLASSES && free_[n].size() < KEPT) free_[n].push_back(block);
        else std::free(block);
    }
    Blocks() {
        for (Vector<void*>& blocks : free_) blocks.reserve(KEPT);
    }
    ~Blocks() {
        for (const Vector<void*>& blocks : free_)
            for (void* block : blocks) std::free(block);
    }
    static Blocks& mine() {
        static thread_local Blocks blocks;
        return blocks;
    }

  private:
    static constexpr size_t CLASSES = 15, KEPT = 8;  // up to 1 MiB each
    Vector<void*> free_[CLASSES];
};

template <typename T>
struct Buffer {
    size_t n;  // the class of its size
    T* data;
    explicit Buffer(size_t count)
        : n(Blocks::size_class(count * sizeof(T) + 64)), data(static_cast<T*>(Blocks::mine().take(n))) {}
    ~Buffer() {
        if (data) Blocks::mine().give(data, n);
    }
    Buffer(Buffer&& other) noexcept : n(other.n), data(other.data) { other.data = nullptr; }
    Buffer& operator=(Buffer&& other) noexcept {
        std::swap(data, other.data);
        std::swap(n, other.n);
        return *this;
    }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    T& operator[](size_t i) { return data[i]; }
    const T& operator[](size_t i) const { return data[i]; }
};

// Fetches memory into the cache.
inline void fetch_bytes(const void* data, size_t bytes) {
    const char* first = static_cast<const char*>(data);
    for (size_t at = 0; at < bytes; at += 64) __builtin_prefetch(first + at);
    __builtin_prefetch(first + bytes - 1);
}

// Keeps the R best of a stream of at least R pairs (score, row), equal scores by row; writes them in no order.
// A pair is one number that compares as it: the score's bits, made to rise with the score, above the inverted row.
struct Best {
    size_t R, capacity, held = 0;
    Buffer<uint64_t> list;
    float threshold = -INF;

    Best(size_t R, size_t rows) : R(R), capacity(std::min(rows, std::max<size_t>(2 * R, 256))), list(capacity + 1) {}

    static uint64_t pair(float score, size_t row) {
        score += 0.0f;  // -0, which equals 0, becomes 0
        uint32_t bits;
        std::memcpy(&bits, &score, sizeof bits);
        bits = bits >> 31 ? ~bits : bits | 0x80000000u;
        return static_cast<uint64_t>(bits) << 32 | (0xFFFFFFFFu - static_cast<uint32_t>(row));
    }
    static float score(uint64_t pair) {
        uint32_t bits = static_cast<uint32_t>(pair >> 32);
        bits = bits >> 31 ? bits & 0x7FFFFFFFu : ~bits;
        float score;
        std::memcpy(&score, &bits, sizeof score);
        return score;
    }
    static size_t row(uint64_t pair) { return 0xFFFFFFFFu - static_cast<uint32_t>(pair); }

    void cut() {
        std::nth_element(list.data, list.data + (R - 1), list.data + held, [](uint64_t a, uint64_t b) { return a > b; });
        held = R;
    }
    // Drops about all but the R best, by a pivot that a few pairs suggest: quicker than to find the R-th. They are
    // moved without a branch that the processor would have to guess.
    void thin() {
        constexpr size_t SAMPLE = 64, SAFETY = 6;
        const auto falling = [](uint64_t a, uint64_t b) { return a > b; };
        const size_t place = R * SAMPLE / held + SAFETY;
        uint64_t sample[SAMPLE];
        for (size_t i = 0; i < SAMPLE; ++i) sample[i] = list[i * (held / SAMPLE)];
        std::nth_element(sample, sample + std::min(place, SAMPLE - 1), sample + SAMPLE, falling);
        uint64_t pivot = sample[std::min(place, SAMPLE - 1)];
        size_t better = 0;
        for (size_t i = 0; i < held; ++i) better += list[i] >= pivot;
        if (better < R || better == held) {
            cut();
            pivot = list[R - 1];
        } else {
            size_t kept = 0;
            for (size_t i = 0; i < held; ++i) {
                const uint64_t pair = list[i];
                list[kept] = pair;
                kept += pair >= pivot;
            }
            held = kept;
        }
        threshold = score(pivot);
    }
    // for rows in rising order, where an equal score cannot displace the R-th: call if score > threshold
    void push(float score, size_t row) {
        list[held++] = pair(score, row);
        if (held == capacity && capacity > R) thin();
    }
    // Scores that are no number, or infinitely low, are never pushed; where that leaves fewer than R, rows end in -1.
    void write(float* scores, int32_t* rows) {
        if (held > R) cut();
        for (size_t r = 0; r < R; ++r) {
            scores[r] = r < held ? score(list[r]) : -INF;
            rows[r] = r < held ? static_cast<int32_t>(row(list[r])) : -1;
        }
    }
};

}  // namespace
}  // namespace logt
