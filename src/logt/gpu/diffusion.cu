// Diffusion on a neighbor graph, for many queries: as src/kernels/diffusion.cpp. Compiled together with vectors.cu, which comes first.
constexpr int PLACES = 4096;  // rows of a query that are sorted, and multiplied, in shared memory
constexpr u64 NEAR = 1ull << 63;

// The edges of a diffusion: see graph/diffusion.py.
struct Edges {
    const u16* low;  // (rows, k): the neighbors of a row are the rows low + 65536 * high
    const void* high;
    int wide;  // whether `high` has 16 bits
    const u8* level;
    i64 k;
    const u8* mutual;  // (rows, width): which of the first neighbors are edges
    i64 width;
    int neighbors;  // that are looked at
    const float* gain;
    const double* cube;

    __device__ bool has(i64 row, int a) const { return mutual[row * width + a / 8] >> a % 8 & 1; }
    __device__ u32 neighbor(i64 row, int a) const {
        const i64 at = row * k + a;
        return low[at] | (u32)(wide ? ((const u16*)high)[at] : ((const u8*)high)[at]) << 16;
    }
    __device__ float weight(i64 row, int a, u32 other) const {
        return (float)(cube[level[row * k + a]] * ((double)gain[row] * gain[other]));
    }
    // The smaller of the weights in both directions; 0 if there is no edge back.
    __device__ float both(i64 row, int a, u32 other) const {
        for (int b = 0; b < neighbors; ++b)
            if (has(other, b) && neighbor(other, b) == row) return fminf(weight(row, a, other), weight(other, b, (u32)row));
        return 0;
    }
};

// Rows of a query -> values: how strong the edges to a row are, as an integer, or NEAR + its place. Empty after each query.
struct RowMap {
    u32 *keys, last;  // row + 1, or 0; slots - 1, which is 2^n - 1
    u64* values;
    u32* used;  // the slots of all rows, in any order
    int* count;

    __device__ u32 start(u32 row) const { return (u32)(row * 0x9E3779B97F4A7C15ull >> 20) & last; }
    // The value of a row, 0 if it is not there.
    __device__ u64 find(u32 row) const {
        for (u32 slot = start(row);; slot = (slot + 1) & last) {
            if (keys[slot] == row + 1) return values[slot];
            if (!keys[slot]) return 0;
        }
    }
    // The value of a row, which is there from now on.
    __device__ u64* insert(u32 row) const {
        for (u32 slot = start(row);; slot = (slot + 1) & last) {
            u32 known = keys[slot];
            if (!known) {
                known = atomicCAS(&keys[slot], 0u, row + 1);
                if (!known) used[atomicAdd(count, 1)] = slot;
            }
            if (!known || known == row + 1) return &values[slot];
        }
    }
};

// The `wanted`-th largest of some numbers, for all threads of a block: byte by byte, from counts.
template <typename Number>
__device__ u64 nth_largest(int size, int wanted, Number&& number) {
    __shared__ int counts[256], rest;
    __shared__ u64 known;
    if (threadIdx.x == 0) known = 0, rest = wanted;
    for (int shift = 56; shift >= 0; shift -= 8) {
        for (int i = threadIdx.x; i < 256; i += blockDim.x) counts[i] = 0;
        __syncthreads();
        const u64 prefix = known;
        for (int i = threadIdx.x; i < size; i += blockDim.x) {
            const u64 value = number(i);
            if (shift == 56 || value >> (shift + 8) == prefix) atomicAdd(&counts[value >> shift & 255], 1);
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            int digit = 255;
            for (; counts[digit] < rest; --digit) rest -= counts[digit];
            known = prefix << 8 | digit;
        }
        __syncthreads();
    }
    const u64 result = known;
    __syncthreads();
    return result;
}

// What queries spread to: f = (I - alpha S)^-1 y on at most `limit` rows, `hops` edges from those of y, by conjugate gradients. A
// block has one query at a time, and memory for `most` rows and `entries` rows that it meets. rows: (queries, results), -1 for none;
// y: (queries, starts), of the first results. gained: f of the results; found, value: other rows and their f, -1 for none.
extern "C" __global__ void __launch_bounds__(512, 2) spread(
    const u16* low, const void* high, int wide, const u8* level, i64 k, const u8* mutual, i64 width, int neighbors, const float* gain,
    const double* cube, const i64* rows, const double* y, i64 queries, int results, int starts, const u8* visible, double alpha,
    int hops, int limit, int steps, double precision, i64 most, i64 padded, i64 entries, i64 slots, u32* all_keys, u64* all_values,
    u32* all_used, int* all_near, int* all_degrees, int2* all_edges, double* all_vectors, u64* all_places, int places, double* gained,
    i64* found, double* value) {
    __shared__ u64 shared_places[PLACES];
    __shared__ int used_count, held;
    const Edges S = {low, high, wide, level, k, mutual, width, neighbors, gain, cube};
    const i64 block = blockIdx.x;
    const RowMap map = {all_keys + block * slots, (u32)(slots - 1), all_values + block * slots, all_used + block * entries, &used_count};
    int *near = all_near + block * most, *degrees = all_degrees + block * most;
    int2* edges = all_edges + block * most * neighbors;  // edge e of the row at place i is edges[e * most + i]: column, weight
    double *f = all_vectors + block * 3 * most, *r = f + most, *Ap = r + most;
    u64* sorted = padded <= PLACES ? shared_places : all_places + block * padded;
    double* p = (double*)sorted;
    for (i64 q = block; q < queries; q += gridDim.x) {
        const i64* mine = rows + q * results;
        __syncthreads();
        if (threadIdx.x < LANES) {  // the results that it starts from, in their order
            int count = 0;
            for (int first = 0; first < starts; first += LANES) {
                const int c = first + (int)threadIdx.x;
                const bool inside = c < starts && mine[c] >= 0 && y[q * starts + c] > 0;
                const u32 votes = __ballot_sync(~0u, inside);
                const int place = count + __popc(votes & ((1u << threadIdx.x) - 1));
                if (inside) near[place] = (int)mine[c], r[place] = y[q * starts + c];
                count += __popc(votes);
            }
            if (threadIdx.x == 0) held = count, used_count = 0;
        }
        __syncthreads();
        const int inside = held;
        for (int i = threadIdx.x; i < inside; i += blockDim.x) *map.insert((u32)near[i]) = NEAR | (u64)i;
        __syncthreads();
        int n = inside, front = 0;  // rows so far, and where those of the last hop are
        for (int hop = 0; hop < hops && n < limit; ++hop) {
            const int known = used_count, room = limit - n;
            __syncthreads();
            for (i64 at = threadIdx.x; at < (i64)(n - front) * neighbors; at += blockDim.x) {
                const i64 row = near[front + at / neighbors];
                const int a = (int)(at % neighbors);
                if (!S.has(row, a)) continue;
                const u32 other = S.neighbor(row, a);
                if (visible && !visible[other]) continue;
                u64* strength = map.insert(other);  // integers: the sum does not depend on the order
                if (!(*strength & NEAR)) atomicAdd(strength, (u64)((double)S.weight(row, a, other) * 68719476736.0 + 0.5));
            }
            __syncthreads();
            const int fresh = used_count - known;
            if (!fresh) break;
            const u32* slot = map.used + known;
            u64 least = 0, last = 0;  // strength of what is kept, and among those that just reach it, by row
            if (fresh > room) {
                least = nth_largest(fresh, room, [&](int i) { return map.values[slot[i]]; });
                if (threadIdx.x == 0) held = 0;
                __syncthreads();
                for (int i = threadIdx.x; i < fresh; i += blockDim.x)
                    if (map.values[slot[i]] > least) atomicAdd(&held, 1);
                __syncthreads();
                const int ties = room - held;
                __syncthreads();
                last = nth_largest(fresh, ties, [&](int i) { return map.values[slot[i]] == least ? (u64)~map.keys[slot[i]] : 0; });
            }
            int size = 1;
            while (size < min(fresh, room)) size *= 2;
            if (threadIdx.x == 0) held = 0;
            for (int i = threadIdx.x; i < size; i += blockDim.x) sorted[i] = ~0ull;
            __syncthreads();
            for (int i = threadIdx.x; i < fresh; i += blockDim.x) {
                const u64 strength = map.values[slot[i]];
                const u32 key = map.keys[slot[i]];
                if (strength > least || (strength == least && (u64)~key >= last)) sorted[atomicAdd(&held, 1)] = key - 1;
            }
            sort(sorted, size);
            const int kept = held;
            for (int i = threadIdx.x; i < kept; i += blockDim.x) {
                near[n + i] = (int)sorted[i], r[n + i] = 0;
                *map.insert((u32)sorted[i]) = NEAR | (u64)(n + i);
            }
            __syncthreads();
            front = n, n += kept;
        }
        for (int i = threadIdx.x; i < n; i += blockDim.x) {
            int degree = 0;
            for (int a = 0; a < neighbors; ++a) {
                if (!S.has(near[i], a)) continue;
                const u32 other = S.neighbor(near[i], a);
                const u64 place = map.find(other);
                if (place & NEAR) edges[degree++ * most + i] = {(int)(place & ~NEAR), __float_as_int(S.both(near[i], a, other))};
            }
            degrees[i] = degree;
        }
        double square = 0;
        for (int i = threadIdx.x; i < n; i += blockDim.x) p[i] = r[i], f[i] = 0, square += r[i] * r[i];
        double left = block_sum(square);
        const double enough = precision * precision * left;
        for (int step = 0; step < steps && left > enough; ++step) {
            double product = 0;
            for (int i = threadIdx.x; i < n; i += blockDim.x) {
                double sum = 0;
#pragma unroll 4
                for (int e = 0; e < degrees[i]; ++e) {
                    const int2 edge = edges[e * most + i];
                    sum += (double)__int_as_float(edge.y) * p[edge.x];
                }
                Ap[i] = p[i] - alpha * sum;
                product += p[i] * Ap[i];
            }
            const double length = left / block_sum(product), before = left;
            square = 0;
            for (int i = threadIdx.x; i < n; i += blockDim.x) {
                f[i] += length * p[i], r[i] -= length * Ap[i];
                square += r[i] * r[i];
            }
            left = block_sum(square);
            for (int i = threadIdx.x; i < n; i += blockDim.x) p[i] = r[i] + left / before * p[i];
            __syncthreads();
        }
        __syncthreads();
        for (int c = threadIdx.x; c < results; c += blockDim.x) {
            const u64 place = mine[c] < 0 ? 0 : map.find((u32)mine[c]);
            gained[q * results + c] = place & NEAR ? fmax(f[place & ~NEAR], 0.0) : 0.0;
            if (place & NEAR) near[place & ~NEAR] = -1;  // a result, not a row that was found
        }
        __syncthreads();
        for (int i = threadIdx.x; i < places; i += blockDim.x) {
            const bool any = inside + i < n && near[inside + i] >= 0;
            found[q * places + i] = any ? near[inside + i] : -1, value[q * places + i] = any ? fmax(f[inside + i], 0.0) : 0.0;
        }
        for (int i = threadIdx.x; i < used_count; i += blockDim.x) map.keys[map.used[i]] = 0, map.values[map.used[i]] = 0;
    }
}
