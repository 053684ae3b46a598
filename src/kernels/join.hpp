// Better neighbors for the rows of a graph: the neighbors of their neighbors. Compiled once per instruction set.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "best.hpp"
#include "kernels.hpp"
#include "seen.hpp"

namespace logt {
namespace {

inline int32_t dot(const int8_t* a, const int8_t* b, size_t dim) {
    int32_t sum = 0;
    for (size_t i = 0; i < dim; ++i) sum += a[i] * b[i];
    return sum;
}

// The product of row i with row j, but for scale[i]
inline float product(const ByteRows& X, size_t i, size_t j) {
    return static_cast<float>(dot(X.codes + i * X.dim, X.codes + j * X.dim, X.dim)) * X.scale[j];
}

// Candidates for row i: what a new edge leads to, or two edges of which one is new, without i and its neighbors. Some may have
// been compared with it before.
inline void find_candidates(const uint32_t* adjacent, size_t width, size_t i, const uint32_t* found, size_t k, Seen& seen,
                            Vector<uint32_t>& candidates) {
    seen.clear();
    candidates.clear();
    seen.insert(static_cast<uint32_t>(i));
    for (size_t r = 0; r < k && found[r] != NO_ROW; ++r) seen.insert(found[r] & ~NEW_ROW);
    for (const uint32_t *a = adjacent + i * width, *last = a + width; a < last && *a != NO_ROW; ++a) {
        if (*a & NEW_ROW && seen.insert(*a & ~NEW_ROW)) candidates.push_back(*a & ~NEW_ROW);
        const uint32_t* b = adjacent + (*a & ~NEW_ROW) * width;
        for (const uint32_t* end = b + width; b < end && *b != NO_ROW; ++b)
            if ((*a | *b) & NEW_ROW && seen.insert(*b & ~NEW_ROW)) candidates.push_back(*b & ~NEW_ROW);
    }
}

size_t join(const ByteRows& X, const uint32_t* adjacent, size_t width, size_t first, size_t count, size_t k, uint32_t* found) {
    constexpr size_t AHEAD = 2, LINE = 64;
    Seen seen;
    Vector<uint32_t> candidates;
    Vector<float> best(k);
    size_t changes = 0;
    for (size_t i = first; i < first + count; ++i, found += k) {
        find_candidates(adjacent, width, i, found, k, seen, candidates);
        std::fill(best.begin(), best.end(), -INF);
        for (size_t r = 0; r < k && found[r] != NO_ROW; ++r) best[r] = product(X, i, found[r] & ~NEW_ROW);
        for (size_t c = 0; c < candidates.size(); ++c) {
            if (c + AHEAD < candidates.size()) {
                const int8_t* next = X.codes + candidates[c + AHEAD] * X.dim;
                for (size_t at = 0; at < X.dim; at += LINE) __builtin_prefetch(next + at);
            }
            const float value = product(X, i, candidates[c]);
            if (!(value > best[k - 1])) continue;
            size_t at = k - 1;
            for (; at > 0 && best[at - 1] < value; --at) best[at] = best[at - 1], found[at] = found[at - 1];
            best[at] = value, found[at] = candidates[c] | NEW_ROW;
        }
        changes += static_cast<size_t>(std::count_if(found, found + k, [](uint32_t f) { return f != NO_ROW && f & NEW_ROW; }));
    }
    return changes;
}

void similarities(const ByteRows& X, size_t first, size_t count, size_t k, uint32_t* found, float* out) {
    for (size_t i = first; i < first + count; ++i, found += k, out += k)
        for (size_t r = 0; r < k; ++r) {
            out[r] = 0;
            if (found[r] == NO_ROW) continue;
            found[r] &= ~NEW_ROW;
            out[r] = std::clamp(product(X, i, found[r]) * X.scale[i], -1.0f, 1.0f);
        }
}

}  // namespace
}  // namespace logt
