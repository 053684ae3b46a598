// Compiled once per instruction set (LOGT_TABLE names the copy). Everything but the table has internal linkage, so
// that no function built for a newer processor can stand in for one that an older processor runs.
#include "kernels.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>

namespace logt {
namespace {

constexpr size_t LANES = 16;
typedef float Lanes __attribute__((vector_size(64)));
typedef int32_t IntLanes __attribute__((vector_size(64)));
constexpr float INF = std::numeric_limits<float>::infinity();

size_t padded(size_t n) { return (n + LANES - 1) / LANES * LANES; }

template <typename T>
struct Buffer {
    T* data;
    explicit Buffer(size_t n) : data(static_cast<T*>(std::aligned_alloc(64, (n * sizeof(T) / 64 + 1) * 64))) {
        if (!data) throw std::bad_alloc();
    }
    ~Buffer() { std::free(data); }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    T& operator[](size_t i) { return data[i]; }
};

inline Lanes load(const float* p) {
    Lanes v;
    std::memcpy(&v, p, sizeof v);
    return v;
}
inline void store(float* p, Lanes v) { std::memcpy(p, &v, sizeof v); }
inline Lanes all(float x) { return x - Lanes{}; }
inline Lanes smaller(Lanes a, Lanes b) { return a < b ? a : b; }
inline Lanes larger(Lanes a, Lanes b) { return a > b ? a : b; }

// ---------------------------------------------------------------------------------------------- growing units

void grow_units(const float* A, size_t size, const int32_t* sizes, size_t count, const int32_t* order, bool sum,
                int32_t* out) {
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
        for (size_t place = 0; place < count; ++place) {
            const size_t u = order[(turn - 1) * count + place];
            if (sizes[u] <= turn) continue;
            float* mine = &cost[u * stride];
            std::memcpy(row.data, A + last[u] * size, size * sizeof(float));
            Lanes best = all(INF);
            for (size_t i = 0; i < stride; i += LANES) {
                const Lanes now = load(mine + i), more = load(&row[i]);
                const Lanes then = sum ? now + more : larger(now, more);
                store(mine + i, then);
                best = smaller(best, then);
            }
            float least = INF;
            for (size_t l = 0; l < LANES; ++l) least = std::min(least, best[l]);
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
            Lanes sum[TOGETHER] = {};
            size_t i = 0;
            for (; i + LANES <= dim; i += LANES) {
                const Lanes v = load(x + i);
                for (size_t l = 0; l < TOGETHER; ++l) sum[l] += v * load(a[l] + i);
            }
            for (size_t l = 0; l < TOGETHER && j + l < count; ++l) {
                float total = 0;
                for (size_t lane = 0; lane < LANES; ++lane) total += sum[l][lane];
                for (size_t rest = i; rest < dim; ++rest) total += x[rest] * a[l][rest];
                out[b * capacity + j + l] = total;
            }
        }
    }
}

constexpr size_t BLOCK = 64;             // columns of V kept together, so that the inner loop reads one stream
constexpr float DEPENDENT = 1e-5f;       // an atom with less than this left outside the span of the chosen is skipped
constexpr float NOTHING_LEFT = 1e-7f;    // correlations below this are rounding: the vector is reproduced

struct Entry {
    float weight;
    uint32_t unit;
};

// Greedy least squares. With atoms a_j (unit norm, Gram matrix `gram`), chosen set I and Cholesky factor R of its
// Gram matrix, V = R^-T * gram[I, :] holds the atoms' coordinates in the orthonormal basis of the chosen ones:
//   corr[j] = a_j . residual,  left[j] = |a_j outside span(I)|^2,  z = coordinates of x.
// Chosen columns are swapped to the front, so that V[t][k] for t <= k is R and the active width shrinks.
void omp(const float* gram, size_t units, const float* corr_all, const int32_t* support_all, const int32_t* counts,
         size_t rows, size_t capacity, size_t L, const float* rescale, uint32_t* out_unit, float* out_weight) {
    const size_t blocks = (capacity + BLOCK - 1) / BLOCK, wide = blocks * BLOCK;
    const size_t depth = std::min(L, capacity);
    Buffer<float> V(blocks * depth * BLOCK), corr(wide), left(wide), coef(depth + 1), z(depth + 1), diagonal(depth + 1);
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
        while (k < depth && k < active) {
            size_t best = k;
            float most = -1.0f;
            for (size_t j = k; j < active; ++j) {
                const float size = std::fabs(corr[j]);
                if (size > most) most = size, best = j;
            }
            if (most < NOTHING_LEFT) break;
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
                Lanes a0 = load(start), a1 = load(start + 16), a2 = load(start + 32), a3 = load(start + 48);
                float* v = V.data + first * depth;
                for (size_t t = 0; t < k; ++t) {
                    const Lanes c = all(coef[t]);
                    const float* r = v + t * BLOCK;
                    a0 -= c * load(r), a1 -= c * load(r + 16), a2 -= c * load(r + 32), a3 -= c * load(r + 48);
                }
                const Lanes inverse = all(1.0f / root), step = all(zk);
                Lanes* sums[] = {&a0, &a1, &a2, &a3};
                for (size_t l = 0; l < 4; ++l) {
                    const size_t j = first + l * LANES;
                    const Lanes value = *sums[l] * inverse;
                    // columns up to k are chosen: R must keep its zeros below the diagonal, here they are never read
                    if (j > k) {
                        store(v + k * BLOCK + l * LANES, value);
                        store(&corr[j], load(&corr[j]) - step * value);
                        store(&left[j], load(&left[j]) - value * value);
                    } else {
                        for (size_t i = 0; i < LANES; ++i)
                            if (j + i > k) {
                                v[k * BLOCK + l * LANES + i] = value[i];
                                corr[j + i] -= zk * value[i];
                                left[j + i] -= value[i] * value[i];
                            }
                    }
                }
            }
            ++k;
        }

        // R u = z, from the last row up
        for (size_t t = k; t-- > 0;) {
            const float u = z[t] / diagonal[t];
            const float* mine = column(t);
            for (size_t s = 0; s < t; ++s) z[s] -= mine[s * BLOCK] * u;
            entry[t] = {u * rescale[atom[t]], static_cast<uint32_t>(atom[t])};
        }
        std::sort(entry.data, entry.data + k, [](const Entry& a, const Entry& b) {
            const float x = std::fabs(a.weight), y = std::fabs(b.weight);
            return x != y ? x > y : a.unit < b.unit;
        });
        for (size_t t = 0; t < L; ++t) {
            out_unit[b * L + t] = t < k ? entry[t].unit : 0;
            out_weight[b * L + t] = t < k ? entry[t].weight : 0.0f;
        }
    }
}

// -------------------------------------------------------------------------------------------------- decoding

// Keeps the R best of a stream of (score, row), ordered by score, then by id.
struct Best {
    const int64_t* id;
    size_t R, capacity, held = 0;
    Buffer<Ranked> list;
    float threshold = -INF;

    Best(const int64_t* id, size_t R, size_t rows)
        : id(id), R(R), capacity(std::min(rows, std::max<size_t>(2 * R, 256))), list(capacity + 1) {}

    bool before(const Ranked& a, const Ranked& b) const {
        return a.score != b.score ? a.score > b.score : id[a.row] < id[b.row];
    }
    auto order() const {
        return [this](const Ranked& a, const Ranked& b) { return before(a, b); };
    }
    void push(float score, size_t row) {
        if (held == capacity) {
            std::nth_element(list.data, list.data + (R - 1), list.data + held, order());
            held = R;
            threshold = list[R - 1].score;
            if (score < threshold) return;
        }
        list[held++] = {score, static_cast<int32_t>(row)};
    }
    void write(float* scores, int32_t* rows) {
        const size_t n = std::min(held, R);
        std::partial_sort(list.data, list.data + n, list.data + held, order());
        for (size_t r = 0; r < R; ++r) {
            scores[r] = r < n ? list[r].score : -INF;
            rows[r] = r < n ? list[r].row : -1;
        }
    }
};

// Four partial sums, as in `tile`, so that one query and a batch add in the same order.
template <typename Unit, typename Weight>
inline float dot(const Unit* unit, const Weight* weight, size_t from, size_t to, const float* c) {
    float sum[4] = {0, 0, 0, 0};
    size_t t = from;
    for (; t + 4 <= to; t += 4)
        for (size_t l = 0; l < 4; ++l) sum[l] += static_cast<float>(weight[t + l]) * c[unit[t + l]];
    for (size_t l = 0; t < to; ++t, ++l) sum[l] += static_cast<float>(weight[t]) * c[unit[t]];
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

template <typename Unit, typename Weight>
void one(const Codes<Unit, Weight>& U, const float* c, size_t R, float* scores, int32_t* rows) {
    Best best(U.id, R, U.rows);
    for (size_t i = 0; i < U.rows; ++i) {
        const float sum = dot(U.unit + i * U.width, U.weight + i * U.width, 0, U.entries(i), c);
        const float score = U.bias ? U.scale[i] * sum + U.bias[i] : U.scale[i] * sum;
        if (score >= best.threshold) best.push(score, i);
    }
    best.write(scores, rows);
}

template <typename Unit, typename Weight>
void tile(const Codes<Unit, Weight>& U, const float* c, size_t queries, size_t R, float* scores, int32_t* rows) {
    alignas(64) char space[LANES * sizeof(Best)];
    Best* best = reinterpret_cast<Best*>(space);
    size_t made = 0;
    struct Guard {
        Best* best;
        size_t& made;
        ~Guard() {
            while (made) best[--made].~Best();
        }
    } guard{best, made};
    for (; made < queries; ++made) new (&best[made]) Best(U.id, R, U.rows);

    alignas(64) float threshold[LANES];
    for (size_t l = 0; l < LANES; ++l) threshold[l] = l < queries ? -INF : INF;
    for (size_t i = 0; i < U.rows; ++i) {
        const Unit* unit = U.unit + i * U.width;
        const Weight* weight = U.weight + i * U.width;
        const size_t entries = U.entries(i);
        Lanes sum[4] = {};
        size_t t = 0;
        for (; t + 4 <= entries; t += 4)
            for (size_t l = 0; l < 4; ++l)
                sum[l] += all(static_cast<float>(weight[t + l])) * load(c + size_t{unit[t + l]} * LANES);
        for (size_t l = 0; t < entries; ++t, ++l)
            sum[l] += all(static_cast<float>(weight[t])) * load(c + size_t{unit[t]} * LANES);
        Lanes score = ((sum[0] + sum[1]) + (sum[2] + sum[3])) * all(U.scale[i]);
        if (U.bias) score += all(U.bias[i]);
        const IntLanes over = score >= load(threshold);
        int32_t any = 0;
        for (size_t l = 0; l < LANES; ++l) any |= over[l];
        if (!any) continue;
        for (size_t q = 0; q < queries; ++q)
            if (over[q]) {
                best[q].push(score[q], i);
                threshold[q] = best[q].threshold;
            }
    }
    for (size_t q = 0; q < queries; ++q) best[q].write(scores + q * R, rows + q * R);
}

template <typename Unit, typename Weight>
void refine(const Codes<Unit, Weight>& U, const float* c, const int32_t* rows, size_t count, float* scores) {
    constexpr size_t AHEAD = 4;
    for (size_t r = 0; r < count; ++r) {
        if (r + AHEAD < count && rows[r + AHEAD] >= 0) {
            const size_t next = static_cast<size_t>(rows[r + AHEAD]) * U.width;
            for (size_t t = 0; t < U.width; t += 64 / sizeof(Unit)) __builtin_prefetch(U.unit + next + t);
            for (size_t t = 0; t < U.width; t += 64 / sizeof(Weight)) __builtin_prefetch(U.weight + next + t);
        }
        if (rows[r] < 0) continue;
        const size_t i = static_cast<size_t>(rows[r]);
        scores[r] += U.scale[i] * dot(U.unit + i * U.width, U.weight + i * U.width, U.entries(i), U.width, c);
    }
}

template <typename Unit, typename Weight>
void reconstruct(const Unit* unit, const Weight* weight, size_t rows, size_t width, const float* Y, size_t dim,
                 float* out) {
    for (size_t b = 0; b < rows; ++b, unit += width, weight += width, out += dim) {
        std::fill_n(out, dim, 0.0f);
        for (size_t t = 0; t < width; ++t) {
            const float w = static_cast<float>(weight[t]);
            if (w == 0.0f) continue;
            const float* y = Y + size_t{unit[t]} * dim;
            for (size_t j = 0; j < dim; ++j) out[j] += w * y[j];
        }
    }
}

template <typename Unit, typename Weight>
constexpr Decoder<Unit, Weight> decoder() {
    return {one<Unit, Weight>, tile<Unit, Weight>, refine<Unit, Weight>, reconstruct<Unit, Weight>};
}

}  // namespace

const Table LOGT_TABLE = {
    grow_units,
    correlate,
    omp,
    decoder<uint16_t, int8_t>(),
    decoder<uint16_t, float>(),
    decoder<uint32_t, int8_t>(),
    decoder<uint32_t, float>(),
};

}  // namespace logt
