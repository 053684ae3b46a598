// Compiled once per instruction set (LOGT_TABLE names the copy). Everything but the table has internal linkage, so
// that no function built for a newer processor can stand in for one that an older processor runs.
#include "kernels.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "best.hpp"
#include "byte_products.hpp"
#include "join.hpp"
#include "lanes.hpp"
#include "nearest.hpp"

namespace logt {
namespace {

size_t padded(size_t n) { return (n + LANES - 1) / LANES * LANES; }

// ---------------------------------------------------------------------------------------------- growing units

void grow_units(const float* A, size_t size, const int32_t* sizes, size_t count, bool sum, int32_t* out) {
    const size_t stride = padded(size);
    // cost[u][i]: cost of putting i into unit u as it was at its last pick; infinite once i is taken
    Buffer<float> cost(count * stride), row(stride);
    Buffer<int32_t> last(count);
    int32_t longest = 0;
    std::fill_n(cost.data, count * stride, INF);
    for (size_t u = 0; u < count; ++u) {
        std::fill_n(&cost[u * stride], size, sum ? 0.0f : -INF);
        longest = std::max(longest, sizes[u]);
        last[u] = static_cast<int32_t>(u);
        out[u] = static_cast<int32_t>(u);
    }
    for (size_t u = 0; u < count; ++u)
        for (size_t taken = 0; taken < count; ++taken) cost[u * stride + taken] = INF;

    std::fill_n(row.data, stride, 0.0f);
    for (int32_t turn = 1; turn < longest; ++turn)
        for (size_t u = 0; u < count; ++u) {
            if (sizes[u] <= turn) continue;
            float* mine = &cost[u * stride];
            std::memcpy(row.data, A + last[u] * size, size * sizeof(float));
            Vec best = INF - Vec{};
            for (size_t i = 0; i < stride; i += VECTOR) {
                const Vec now = read<Vec>(mine + i), more = read<Vec>(&row[i]);
                const Vec then = sum ? now + more : (now > more ? now : more);
                std::memcpy(mine + i, &then, sizeof then);
                best = best < then ? best : then;
            }
            float least = INF;
            for (size_t l = 0; l < VECTOR; ++l) least = std::min(least, best[l]);
            size_t pick = 0;
            while (mine[pick] != least) ++pick;
            out[pick] = static_cast<int32_t>(u);
            last[u] = static_cast<int32_t>(pick);
            for (size_t v = 0; v < count; ++v) cost[v * stride + pick] = INF;
        }
}

// ------------------------------------------------------------------------------------ orthogonal matching pursuit

void correlate(const float* X, const float* A, size_t dim, const int32_t* support, const int32_t* counts, size_t rows,
               size_t capacity, float* out) {
    constexpr size_t TOGETHER = 4;
    for (size_t b = 0; b < rows; ++b) {
        const float* x = X + b * dim;
        const int32_t* mine = support + b * capacity;
        const size_t count = static_cast<size_t>(counts[b]);
        for (size_t j = 0; j < count; j += TOGETHER) {
            const float* a[TOGETHER];
            for (size_t l = 0; l < TOGETHER; ++l) a[l] = A + static_cast<size_t>(mine[std::min(j + l, count - 1)]) * dim;
            Vec sum[TOGETHER] = {};
            size_t i = 0;
            for (; i + VECTOR <= dim; i += VECTOR) {
                const Vec v = read<Vec>(x + i);
                for (size_t l = 0; l < TOGETHER; ++l) sum[l] += v * read<Vec>(a[l] + i);
            }
            for (size_t l = 0; l < TOGETHER && j + l < count; ++l) {
                float total = 0;
                for (size_t lane = 0; lane < VECTOR; ++lane) total += sum[l][lane];
                for (size_t rest = i; rest < dim; ++rest) total += x[rest] * a[l][rest];
                out[b * capacity + j + l] = total;
            }
        }
    }
}

constexpr size_t SUMS = VECTOR == 16 ? 4 : 8, BLOCK = SUMS * VECTOR;  // columns of V kept together: one stream to read
constexpr float DEPENDENT = 1e-5f;       // an atom with less than this left outside the span of the chosen is skipped
constexpr float NOTHING_LEFT = 1e-7f;    // correlations below this part of the first are rounding: the vector is reproduced

struct Entry {
    float weight;
    uint32_t unit;
};

// Greedy least squares. With atoms a_j (unit norm, Gram matrix `gram`), chosen set I and Cholesky factor R of its
// Gram matrix, V = R^-T * gram[I, :] holds the atoms' coordinates in the orthonormal basis of the chosen ones:
//   corr[j] = a_j . residual,  left[j] = |a_j outside span(I)|^2,  z = coordinates of x.
// Chosen columns are swapped to the front, so that V[t][k] for t <= k is R and the active width shrinks. first[b], if
// not negative, is the atom of row b that is chosen first, and stays its first entry.
void omp(const float* gram, size_t units, const float* corr_all, const int32_t* support_all, const int32_t* counts,
         const int32_t* first_all, size_t rows, size_t capacity, const int32_t* lengths, size_t parts, const float* rescale, uint32_t* out_unit,
         float* out_weight) {
    const size_t L = static_cast<size_t>(lengths[parts - 1]);
    const size_t blocks = (capacity + BLOCK - 1) / BLOCK, wide = blocks * BLOCK;
    const size_t depth = std::min(L, capacity);
    Buffer<float> V(blocks * depth * BLOCK), corr(wide), left(wide), coef(depth + 1), z(depth + 1), diagonal(depth + 1),
        rest(depth + 1);
    Buffer<int32_t> atom(wide);
    Buffer<Entry> entry(depth + 1);
    auto column = [&](size_t j) { return V.data + (j / BLOCK) * depth * BLOCK + j % BLOCK; };  // rows BLOCK apart
    std::fill_n(V.data, blocks * depth * BLOCK, 0.0f);

    for (size_t b = 0; b < rows; ++b) {
        const int32_t* support = support_all + b * capacity;
        size_t active = static_cast<size_t>(counts[b]);  // columns chosen or still worth choosing
        for (size_t j = 0; j < active; ++j) {
            atom[j] = support[j];
            corr[j] = corr_all[b * capacity + j];
            left[j] = 1.0f;
        }
        auto swap = [&](size_t i, size_t j, size_t chosen) {
            if (i == j) return;
            std::swap(atom[i], atom[j]);
            std::swap(corr[i], corr[j]);
            std::swap(left[i], left[j]);
            float *p = column(i), *q = column(j);
            for (size_t t = 0; t < chosen; ++t) std::swap(p[t * BLOCK], q[t * BLOCK]);
        };

        size_t k = 0;
        float first_most = -1.0f;
        while (k < depth && k < active) {
            size_t best = k;
            float most = -1.0f;
            for (size_t j = k; j < active; ++j) {
                const float size = std::fabs(corr[j]);
                if (size > most) most = size, best = j;
            }
            if (first_most < 0) first_most = most;
            const bool forced = k == 0 && first_all && first_all[b] >= 0;
            if (forced)
                for (best = 0; atom[best] != first_all[b];) ++best;
            else if (!(most > NOTHING_LEFT * first_most))
                break;
            if (left[best] < DEPENDENT) {
                swap(best, --active, k);
                continue;
            }
            swap(k, best, k);
            const float root = std::sqrt(left[k]), zk = corr[k] / root;
            diagonal[k] = root;
            z[k] = zk;
            const float* mine = column(k);
            for (size_t t = 0; t < k; ++t) coef[t] = mine[t * BLOCK];
            const float* similar = gram + static_cast<size_t>(atom[k]) * units;
            for (size_t first = (k + 1) / BLOCK * BLOCK; first < active; first += BLOCK) {
                alignas(64) float start[BLOCK];
                const size_t n = std::min(BLOCK, active - first);
                for (size_t l = 0; l < n; ++l) start[l] = similar[atom[first + l]];
                std::memset(start + n, 0, (BLOCK - n) * sizeof(float));
                Vec sum[SUMS];
                for (size_t l = 0; l < SUMS; ++l) sum[l] = read<Vec>(start + l * VECTOR);
                float* v = V.data + first * depth;
                for (size_t t = 0; t < k; ++t)
                    for (size_t l = 0; l < SUMS; ++l) sum[l] -= coef[t] * read<Vec>(v + t * BLOCK + l * VECTOR);
                float* row = v + k * BLOCK;
                for (size_t l = 0; l < SUMS; ++l) {
                    const Vec value = sum[l] / root;
                    std::memcpy(start + l * VECTOR, &value, sizeof value);
                }
                // columns up to k are chosen already: what stands there is R and z
                for (size_t l = first > k ? 0 : k + 1 - first; l < BLOCK; ++l) {
                    row[l] = start[l];
                    corr[first + l] -= zk * start[l];
                    left[first + l] -= start[l] * start[l];
                }
            }
            ++k;
        }

        // R u = z for the first of the chosen, from the last row up
        for (size_t part = 0; part < parts; ++part) {
            const size_t length = static_cast<size_t>(lengths[part]), used = std::min(k, length);
            std::copy_n(z.data, used, rest.data);
            for (size_t t = used; t-- > 0;) {
                const float u = rest[t] / diagonal[t];
                const float* mine = column(t);
                for (size_t s = 0; s < t; ++s) rest[s] -= mine[s * BLOCK] * u;
                entry[t] = {u * rescale[atom[t]], static_cast<uint32_t>(atom[t])};
            }
            const size_t fixed = first_all && first_all[b] >= 0 ? std::min<size_t>(used, 1) : 0;
            std::sort(entry.data + fixed, entry.data + used, [](const Entry& a, const Entry& b) {
                const float x = std::fabs(a.weight), y = std::fabs(b.weight);
                return x != y ? x > y : a.unit < b.unit;
            });
            for (size_t t = 0; t < length; ++t) {
                *out_unit++ = t < used ? entry[t].unit : 0;
                *out_weight++ = t < used ? entry[t].weight : 0.0f;
            }
        }
    }
}

// -------------------------------------------------------------------------------------------------- decoding

// Entries from..to-1 of a row against the measurements of one query.
template <typename Unit, typename Weight>
inline float dot(const Entries<Unit, Weight>& U, size_t row, size_t from, size_t to, const float* c) {
    LanesOf<GATHER> sum = {};
    float rest = 0;
    for (size_t first = from / RANKS * RANKS; first < to; first += RANKS) {
        const size_t at = U.at(row, first), skip = from > first ? from - first : 0, stop = to - first;
        if (first + RANKS <= U.width)
            sum.add(weights<GATHER>(U.weight + at, static_cast<int32_t>(skip), static_cast<int32_t>(stop)),
                    gather(c, U.unit + at));
        else
            for (size_t l = skip; l < stop; ++l) rest += static_cast<float>(U.weight[at + l]) * c[U.unit[at + l]];
    }
    return sum.sum() + rest;
}

// One query, a few hundred rows at a time: each step is a small loop of its own, whose state stays in registers.
template <typename Unit, typename Weight>
__attribute__((noinline)) void first_block(const Codes<Unit, Weight>& codes, size_t start, size_t count, const float* c,
                                           float* out) {
    const Unit* unit = codes.U.unit + start * RANKS;
    const Weight* weight = codes.U.weight + start * RANKS;
    const uint16_t* length = codes.length ? codes.length + start : nullptr;
    for (size_t i = 0; i < count; ++i, unit += RANKS, weight += RANKS) {
        LanesOf<GATHER> sum = {};
        sum.add(weights<GATHER>(weight, 0, length ? length[i] : static_cast<int32_t>(RANKS)), gather(c, unit));
        out[i] = sum.sum();
    }
}

template <typename Unit, typename Weight>
__attribute__((noinline)) void later_blocks(const Codes<Unit, Weight>& codes, size_t start, size_t count, size_t from,
                                            const float* c, float* out) {
    for (size_t i = 0; i < count; ++i) {
        const size_t entries = codes.entries(start + i);
        if (entries > from) out[i] += dot(codes.U, start + i, from, entries, c);
    }
}

template <typename Unit, typename Weight>
void one(const Codes<Unit, Weight>& codes, const float* c, size_t R, float* scores, int32_t* rows) {
    constexpr size_t CHUNK = 512;
    Best best(R, codes.U.rows);
    alignas(64) float score[CHUNK];
    for (size_t start = 0; start < codes.U.rows; start += CHUNK) {
        const size_t count = std::min(CHUNK, codes.U.rows - start);
        const bool whole = codes.U.width >= RANKS;
        if (whole) first_block(codes, start, count, c, score);
        else std::fill_n(score, count, 0.0f);
        later_blocks(codes, start, count, whole ? RANKS : 0, c, score);
        for (size_t i = 0; i < count; ++i) score[i] *= codes.scale[start + i];
        if (codes.bias)
            for (size_t i = 0; i < count; ++i) score[i] += codes.bias[start + i];
        for (size_t i = 0; i < count; ++i)
            if (score[i] > best.threshold) best.push(score[i], start + i);
    }
    best.write(scores, rows);
}

template <typename Unit, typename Weight>
void decode_prefix(const Prefixes<Unit, Weight>& U0, const float* scale, const float* bias, const float* c, size_t R, float* scores,
           int32_t* rows) {
    Best best(R, U0.rows);
    alignas(64) float score[LANES], below[LANES];  // what is not above the latter is not wanted
    std::fill_n(below, LANES, -INF);
    for (size_t group = 0; group * LANES < U0.rows; ++group) {
        LanesOf<GATHER> sum = {};
        for (int64_t t = U0.starts[group]; t < U0.starts[group + 1]; ++t)
            sum.add(weights<GATHER>(U0.weight + t * LANES, 0, LANES), gather(c, U0.unit + t * LANES));
        const uint32_t* row = U0.row + group * LANES;
        LanesOf<GATHER> estimate = {};
        if (bias) estimate = gather(bias, row);
        estimate.add(sum, gather(scale, row));
        estimate.store(score);
        uint32_t wanted = above(read<Lanes>(score), below);
        if (!wanted) continue;
        if (U0.rows - group * LANES < LANES) wanted &= (1u << (U0.rows - group * LANES)) - 1;
        for (; wanted; wanted &= wanted - 1) {
            const size_t l = static_cast<size_t>(__builtin_ctz(wanted));
            best.push(score[l], row[l]);
        }
        std::fill_n(below, LANES, std::nextafter(best.threshold, -INF));  // rows come in any order
    }
    best.write(scores, rows);
}

template <typename Unit, typename Weight>
void tile(const Codes<Unit, Weight>& codes, const float* c, size_t queries, size_t R, float* scores, int32_t* rows) {
    Vector<Best> best;
    best.reserve(queries);
    for (size_t q = 0; q < queries; ++q) best.emplace_back(R, codes.U.rows);
    alignas(64) float threshold[LANES];
    for (size_t l = 0; l < LANES; ++l) threshold[l] = l < queries ? -INF : INF;
    for (size_t i = 0; i < codes.U.rows; ++i) {
        Lanes even = {}, odd = {};
        const size_t entries = codes.entries(i);
        for (size_t first = 0; first < entries; first += RANKS) {
            const size_t at = codes.U.at(i, first), stop = std::min(RANKS, entries - first);
            const Unit* unit = codes.U.unit + at;
            alignas(64) float weight[RANKS];
            if (first + RANKS <= codes.U.width)
                weights<VECTOR>(codes.U.weight + at, 0, static_cast<int32_t>(stop)).store(weight);
            else
                for (size_t l = 0; l < stop; ++l) weight[l] = static_cast<float>(codes.U.weight[at + l]);
            size_t l = 0;
            for (; l + 2 <= stop; l += 2) {
                even.add(weight[l], c + size_t{unit[l]} * LANES);
                odd.add(weight[l + 1], c + size_t{unit[l + 1]} * LANES);
            }
            if (l < stop) even.add(weight[l], c + size_t{unit[l]} * LANES);
        }
        const Lanes score = even.combined(odd, codes.scale[i], codes.bias ? codes.bias[i] : 0.0f);
        uint32_t over = above(score, threshold);
        if (!over) continue;
        alignas(64) float lane[LANES];
        score.store(lane);
        for (; over; over &= over - 1) {
            const size_t q = static_cast<size_t>(__builtin_ctz(over));
            best[q].push(lane[q], i);
            threshold[q] = best[q].threshold;
        }
    }
    for (size_t q = 0; q < queries; ++q) best[q].write(scores + q * R, rows + q * R);
}

template <typename Unit, typename Weight>
void refine(const Codes<Unit, Weight>& codes, const float* c, const int32_t* rows, size_t count, float* scores) {
    constexpr size_t AHEAD = 2;
    const Entries<Unit, Weight>& U = codes.U;
    for (size_t r = 0; r < count; ++r) {
        if (r + AHEAD < count && rows[r + AHEAD] >= 0)
            for (size_t first = 0; first < U.width; first += RANKS) {
                const size_t at = U.at(static_cast<size_t>(rows[r + AHEAD]), first);
                __builtin_prefetch(U.unit + at);
                __builtin_prefetch(U.weight + at);
            }
        if (rows[r] < 0) continue;
        const size_t i = static_cast<size_t>(rows[r]);
        scores[r] += codes.scale[i] * dot(U, i, codes.entries(i), U.width, c);
    }
}

template <typename Unit, typename Weight>
void reconstruct(const Entries<Unit, Weight>& U, const float* Y, size_t dim, float* out) {
    for (size_t b = 0; b < U.rows; ++b, out += dim) {
        std::fill_n(out, dim, 0.0f);
        for (size_t t = 0; t < U.width; ++t) {
            const size_t at = U.at(b, t / RANKS * RANKS) + t % RANKS;
            const float w = static_cast<float>(U.weight[at]);
            const float* y = Y + size_t{U.unit[at]} * dim;
            for (size_t j = 0; j < dim; ++j) out[j] += w * y[j];
        }
    }
}

void normal_rows(const uint32_t* unit, const float* weight, size_t rows, size_t width, const float* X, size_t dim,
                 size_t units, size_t first, size_t count, float* A, float* B) {
    for (size_t r = 0; r < rows; ++r, unit += width, weight += width, X += dim)
        for (size_t t = 0; t < width; ++t) {
            const size_t at = unit[t] - first;  // huge where unit[t] < first
            const float w = weight[t];
            if (at >= count || w == 0) continue;
            float* a = A + at * units;
            for (size_t s = 0; s < width; ++s) a[unit[s]] += w * weight[s];
            float* b = B + at * dim;
            for (size_t j = 0; j < dim; ++j) b[j] += w * X[j];
        }
}

template <typename Unit, typename Weight>
constexpr Decoder<Unit, Weight> decoder() {
    return {one<Unit, Weight>, decode_prefix<Unit, Weight>, tile<Unit, Weight>, refine<Unit, Weight>, reconstruct<Unit, Weight>};
}

}  // namespace

const Table LOGT_TABLE = {
    grow_units,
    correlate,
    omp,
    normal_rows,
    byte_products,
    nearest_units,
    join,
    similarities,
    decoder<uint16_t, int8_t>(),
    decoder<uint16_t, float>(),
    decoder<uint32_t, int8_t>(),
    decoder<uint32_t, float>(),
};

}  // namespace logt
