// Kernels on a GPU that know nothing of lists: the best of many values, queries, products and sums. CuPy compiles them at run time
// with those of scan.cu, for the card and for the codes of an index: ENTRIES (of a code), UNIT (the type of numbers of units), BITS
// (of a dimension, at most) and MOST (values that are sorted in shared memory) are defined then. host.py has a
// reference implementation of each kernel.
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

constexpr int LANES = 32;

__device__ float to_float(u16 half) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half));
    return value;
}

// ------------------------------------------------------------------------------------------------------------ best

// Numbers in the order of floats, NaN being the least.
__device__ u32 rank_of(float value) {
    const u32 bits = __float_as_uint(value);
    if (value != value) return 0;
    return bits >> 31 ? ~bits : bits | 0x80000000u;
}

// Sorts 2^k numbers of a block, the least first.
__device__ void sort(u64* values, int count) {
    for (int width = 2; width <= count; width *= 2)
        for (int step = width / 2; step; step /= 2) {
            __syncthreads();
            for (int i = threadIdx.x; i < count / 2; i += blockDim.x) {
                const int a = 2 * i - (i & (step - 1)), b = a + step;
                const u64 x = values[a], y = values[b];
                if ((x > y) == !(a & width)) values[a] = y, values[b] = x;
            }
        }
    __syncthreads();
}

// The k largest values of each range first[r]..last[r]-1, best first, equal ones by place; -1 where there are fewer. A block has
// one range. The k-th of the largest values of all threads is a lower bound of the k-th value; if too many values reach it, or k is
// large, the k-th value is found digit by digit, from counts of all digits. halves: values are float16
constexpr int DIGITS = 2048, AHEAD = 8;  // values that a thread reads at a time

extern "C" __global__ void best(const void* values, int halves, const i64* first, const i64* last, int k, i64* out) {
    __shared__ u64 found[MOST];
    __shared__ int counts[DIGITS], held, equal;
    __shared__ u32 prefix;
    __shared__ int above, ties;  // of the k-th value: larger ones, and equal ones
    const float* mine = (const float*)values + first[blockIdx.x];
    const u16* half = (const u16*)values + first[blockIdx.x];
    const u32 size = (u32)(last[blockIdx.x] - first[blockIdx.x]);
    i64* result = out + (i64)blockIdx.x * k;
    auto rank_at = [&](u32 i) { return rank_of(halves ? to_float(half[i]) : mine[i]); };
    auto packed = [&](u32 rank, u32 place) { return (u64)~rank << 32 | place; };
    int sorted = 1;
    bool known_limit = false;
    while (sorted < min((u32)k, size)) sorted *= 2;
    if (size > MOST && k <= (int)blockDim.x / 2) {
        u32 largest = 0;
        for (u32 start = threadIdx.x; start < size; start += AHEAD * blockDim.x)
#pragma unroll
            for (int n = 0; n < AHEAD; ++n)
                if (start + n * blockDim.x < size) largest = max(largest, rank_at(start + n * blockDim.x));
        found[threadIdx.x] = packed(largest, threadIdx.x);
        if (threadIdx.x == 0) held = 0;
        sort(found, blockDim.x);
        const u32 limit = ~(u32)(found[k - 1] >> 32);
        __syncthreads();
        for (u32 start = threadIdx.x; start < size; start += AHEAD * blockDim.x)
#pragma unroll
            for (int n = 0; n < AHEAD; ++n) {
                const u32 i = start + n * blockDim.x, rank = i < size ? rank_at(i) : 0;
                if (i >= size || rank < limit) continue;
                const int at = atomicAdd(&held, 1);
                if (at < MOST) found[at] = packed(rank, i);
            }
        __syncthreads();
        known_limit = held <= MOST;
        if (known_limit) {
            while (sorted < held) sorted *= 2;
            for (int i = held + (int)threadIdx.x; i < sorted; i += blockDim.x) found[i] = ~0ull;
        }
        __syncthreads();
    }
    if (known_limit) {  // those that reach it are sorted
    } else if (size <= MOST) {  // all of them are sorted
        while (sorted < size) sorted *= 2;
        for (u32 i = threadIdx.x; i < sorted; i += blockDim.x) found[i] = i < size ? packed(rank_at(i), i) : ~0ull;
    } else {
        if (threadIdx.x == 0) prefix = 0, above = 0, held = 0, equal = 0;
        for (int digit = 0; digit < 3; ++digit) {
            const int width = digit < 2 ? 11 : 10, shift = digit == 0 ? 21 : digit == 1 ? 10 : 0;
            for (int i = threadIdx.x; i < DIGITS; i += blockDim.x) counts[i] = 0;
            __syncthreads();
            const u32 known = digit ? prefix : 0;
            for (u32 start = threadIdx.x; start < size; start += AHEAD * blockDim.x) {
                u32 rank[AHEAD];
#pragma unroll
                for (int n = 0; n < AHEAD; ++n) rank[n] = start + n * blockDim.x < size ? rank_at(start + n * blockDim.x) : 0;
#pragma unroll
                for (int n = 0; n < AHEAD; ++n) {
                    if (start + n * blockDim.x >= size || (digit && rank[n] >> (shift + width) != known)) continue;
                    atomicAdd(&counts[rank[n] >> shift & ((1u << width) - 1)], 1);
                }
            }
            __syncthreads();
            if (threadIdx.x < LANES) {  // from the largest digit on, 32 at a time
                int more = above, at = (1 << width) - 1 - (int)threadIdx.x;
                for (;; at -= LANES) {
                    int sum = counts[at];
                    for (int d = 1; d < LANES; d *= 2) {
                        const int other = __shfl_up_sync(~0u, sum, d);
                        if ((int)threadIdx.x >= d) sum += other;
                    }
                    const u32 reached = __ballot_sync(~0u, more + sum >= k);
                    if (reached) {
                        const int lane = __ffs((int)reached) - 1;
                        if ((int)threadIdx.x == lane) {
                            prefix = known << width | (u32)at;
                            above = more + sum - counts[at], ties = counts[at];
                        }
                        break;
                    }
                    more += __shfl_sync(~0u, sum, LANES - 1);
                }
            }
            __syncthreads();
        }
        const u32 limit = prefix;
        const int wanted = k - above;  // of those that equal the k-th: the first ones
        for (u32 start = 0; start < size; start += AHEAD * blockDim.x) {
            u32 ranks[AHEAD];
#pragma unroll
            for (int n = 0; n < AHEAD; ++n) {
                const u32 i = start + n * blockDim.x + threadIdx.x;
                ranks[n] = i < size ? rank_at(i) : 0;
                if (i < size && ranks[n] > limit) found[atomicAdd(&held, 1)] = packed(ranks[n], i);
                if (ties == wanted && i < size && ranks[n] == limit) found[above + atomicAdd(&equal, 1)] = packed(ranks[n], i);
            }
            if (ties == wanted) continue;
            bool some = false;
            for (int n = 0; n < AHEAD; ++n) some |= ranks[n] == limit;
            const int known = equal;  // before it changes
            if (!__syncthreads_or(some) || known >= wanted) continue;
            for (int n = 0; n < AHEAD; ++n) {  // in the order of places
                const u32 i = start + n * blockDim.x + threadIdx.x;
                const bool same = i < size && ranks[n] == limit;
                const u32 votes = __ballot_sync(~0u, same);
                for (int w = 0; w < (int)blockDim.x / LANES; ++w) {
                    if ((int)threadIdx.x / LANES == w && votes) {
                        const int before = equal + __popc(votes & ((1u << threadIdx.x % LANES) - 1));
                        if (same && before < wanted) found[above + before] = packed(ranks[n], i);
                        __syncwarp();
                        if (threadIdx.x % LANES == 0) equal += __popc(votes);
                    }
                    __syncthreads();
                }
            }
        }
        __syncthreads();
        for (int i = k + (int)threadIdx.x; i < sorted; i += blockDim.x) found[i] = ~0ull;
    }
    sort(found, sorted);
    for (int i = threadIdx.x; i < k; i += blockDim.x)
        result[i] = i < min((u32)k, size) ? first[blockIdx.x] + (u32)found[i] : -1;
}

// --------------------------------------------------------------------------------------------------------- queries

template <typename T>
__device__ T block_sum(T value) {
    __shared__ T parts[LANES];
    for (int d = LANES / 2; d; d /= 2) value += __shfl_xor_sync(~0u, value, d);
    __syncthreads();
    if (threadIdx.x % LANES == 0) parts[threadIdx.x / LANES] = value;
    __syncthreads();
    T sum = 0;
    for (int w = 0; w < (int)blockDim.x / LANES; ++w) sum += parts[w];
    return sum;
}

// Queries as a codec compares them: of norm 1 under cosine, less the mean under distances; what is added to all their scores; and
// which are not valid. A block has one query.
extern "C" __global__ void prepare(const float* Q, i64 dim, const float* mean, int distances, int cosine, double least, double most,
                                   float* V, float* offset, u8* wrong) {
    const float* q = Q + blockIdx.x * dim;
    double square = 0;
    for (i64 j = threadIdx.x; j < dim; j += blockDim.x) square += (double)q[j] * q[j];
    const double norm = sqrt(block_sum(square));
    const float scale = cosine && norm > 0 ? (float)(1 / norm) : 1;
    double sum = 0;
    for (i64 j = threadIdx.x; j < dim; j += blockDim.x) {
        const float x = q[j] * scale, v = distances ? x - mean[j] : x;
        sum += distances ? -(double)v * v : (double)v * mean[j];
        V[blockIdx.x * dim + j] = v;
    }
    sum = block_sum(sum);
    if (threadIdx.x) return;
    offset[blockIdx.x] = (float)sum;
    wrong[blockIdx.x] = !(norm <= most) || (cosine ? norm == 0 : norm > 0 && norm < least);
}

// Rotated queries times `factor`, and their values for the codes as float16 with a step each. A block has one query.
extern "C" __global__ void weigh(float* whole, i64 dim, float factor, const float* step_of, i64 coded, i64 width,
                                 u16* values, float* steps) {
    __shared__ float parts[LANES];
    float* q = whole + blockIdx.x * dim;
    float most = 1e-30f;
    for (i64 j = threadIdx.x; j < dim; j += blockDim.x) {
        q[j] *= factor;
        if (j < coded) most = fmaxf(most, fabsf(q[j] * step_of[j]));
    }
    for (int d = LANES / 2; d; d /= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, d));
    if (threadIdx.x % LANES == 0) parts[threadIdx.x / LANES] = most;
    __syncthreads();
    for (int w = 0; w < (int)blockDim.x / LANES; ++w) most = fmaxf(most, parts[w]);
    for (i64 j = threadIdx.x; j < width; j += blockDim.x) {
        const float value = j < coded ? q[j] * step_of[j] / most : 0;
        u16 half;
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(value));
        values[blockIdx.x * width + j] = half;
    }
    if (threadIdx.x == 0) steps[blockIdx.x] = most;
}

// The products of one to four rows of A with all rows of B, of which a warp reads one.
extern "C" __global__ void multiply_few(const float* A, i64 few, const float* B, i64 many, i64 dim, float* out) {
    const i64 j = ((i64)blockIdx.x * blockDim.x + threadIdx.x) / LANES;
    if (j >= many) return;
    const int lane = threadIdx.x % LANES;
    float sum[4] = {};
    for (i64 d = lane; d < dim; d += LANES) {
        const float y = B[j * dim + d];
#pragma unroll
        for (int i = 0; i < 4; ++i)
            if (i < few) sum[i] += y * A[i * dim + d];
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        for (int d = LANES / 2; d; d /= 2) sum[i] += __shfl_xor_sync(~0u, sum[i], d);
        if (lane == 0 && i < few) out[i * many + j] = sum[i];
    }
}

// The same for up to 64 rows of A: a lane has two of them, a warp two rows of B.
extern "C" __global__ void multiply_some(const float* A, i64 some, const float* B, i64 many, i64 dim, float* out) {
    __shared__ float a[64][LANES + 1];
    const int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES, warps = blockDim.x / LANES;
    const i64 j = 2 * ((i64)blockIdx.x * warps + warp);
    float sum[2][2] = {};
    for (i64 d = 0; d < dim; d += LANES) {
        __syncthreads();
        for (int i = warp; i < 64; i += warps) a[i][lane] = i < some && d + lane < dim ? A[i * dim + d + lane] : 0;
        __syncthreads();
        float y[2];
        for (int r = 0; r < 2; ++r) y[r] = j + r < many && d + lane < dim ? B[(j + r) * dim + d + lane] : 0;
#pragma unroll
        for (int n = 0; n < LANES; ++n) {
            const float a0 = a[lane][n], a1 = a[lane + LANES][n];
            for (int r = 0; r < 2; ++r) {
                const float b = __shfl_sync(~0u, y[r], n);
                sum[r][0] += b * a0, sum[r][1] += b * a1;
            }
        }
    }
    for (int r = 0; r < 2 && j + r < many; ++r)
        for (int h = 0; h < 2; ++h)
            if (lane + h * LANES < some) out[(lane + h * LANES) * many + j + r] = sum[r][h];
}
