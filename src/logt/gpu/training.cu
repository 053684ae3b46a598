// Kernels of builds on a GPU: sums of groups of vectors, the nearest units, sparse codes and what they leave out. Compiled after
// vectors.cu.

// The sums of the rows of each group, in the order of `row`: the same bytes each time.
extern "C" __global__ void sums(const float* X, i64 dim, const i64* row, const i64* first, float* out) {
    for (i64 j = threadIdx.x; j < dim; j += blockDim.x) {
        float sum = 0;
        for (i64 i = first[blockIdx.x]; i < first[blockIdx.x + 1]; ++i) sum += X[row[i] * dim + j];
        out[(i64)blockIdx.x * dim + j] = sum;
    }
}

// The nearest unit of each row: with the largest product · length · norm − norm² / 2, the first of equal ones. A block has one row.
extern "C" __global__ void nearest(const u16* products, i64 units, const float* length, const float* norm, i64* out) {
    __shared__ u64 parts[LANES];
    const u16* mine = products + blockIdx.x * units;
    u64 best = 0;
    for (i64 j = threadIdx.x; j < units; j += blockDim.x) {
        const float value = (to_float(mine[j]) * length[blockIdx.x] - norm[j] / 2) * norm[j];
        best = max(best, (u64)rank_of(value) << 32 | (u32)~(u32)j);
    }
    for (int d = LANES / 2; d; d /= 2) best = max(best, __shfl_xor_sync(~0u, best, d));
    if (threadIdx.x % LANES == 0) parts[threadIdx.x / LANES] = best;
    __syncthreads();
    for (int w = 0; w < (int)blockDim.x / LANES; ++w) best = max(best, parts[w]);
    if (threadIdx.x == 0) out[blockIdx.x] = (u32)~(u32)best;
}

// Orthogonal matching pursuit of each row among its candidates, from the nearest unit on; a warp has one row, and a lane SLOTS of
// its candidates. V[t] is row t of R⁻ᵀ·Gram, where RᵀR is the Gram matrix of the chosen candidates: what is left of correlations,
// and of the norms of candidates, follows from it. Units have norm 1 here.
constexpr int SLOTS = (ENTRIES * 4 + LANES - 1) / LANES;
constexpr float NOTHING_LEFT = 1e-3f, DEPENDENT = 1e-2f;  // as in kernels.cpp, but products are float16

extern "C" __global__ void pursue(const u16* products, i64 units, const float* length, const i64* candidates, int width,
                                  const i64* nearest, const u16* gram, i64 rows, i64* out_unit, float* out_weight) {
    const i64 row = ((i64)blockIdx.x * blockDim.x + threadIdx.x) / LANES;
    if (row >= rows) return;
    const int lane = threadIdx.x % LANES;
    i64 unit[SLOTS];
    float correlation[SLOTS], left[SLOTS], V[ENTRIES][SLOTS], zeta[ENTRIES], diagonal[ENTRIES], weight[ENTRIES];
    int chosen[ENTRIES], start = -1;
    float largest = 0;
    for (int s = 0; s < SLOTS; ++s) {
        const int j = s * LANES + lane;
        unit[s] = j < width ? candidates[row * width + j] - row * units : -1;
        const u32 here = __ballot_sync(~0u, unit[s] == nearest[row]);
        if (here) start = s * LANES + __ffs((int)here) - 1;
    }
    if (start < 0) start = width - 1;  // the nearest unit is a candidate in any case
    for (int s = 0; s < SLOTS; ++s) {
        if (s * LANES + lane == start) unit[s] = nearest[row];
        correlation[s] = unit[s] < 0 ? 0 : to_float(products[row * units + unit[s]]) * length[row];
        left[s] = unit[s] < 0 ? 0 : 1;
        largest = fmaxf(largest, fabsf(correlation[s]));
    }
    for (int d = LANES / 2; d; d /= 2) largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, d));
#pragma unroll
    for (int t = 0; t < ENTRIES; ++t) {
        u64 best = 0;  // the strongest, the first of equal ones
        for (int s = 0; s < SLOTS; ++s)
            if (left[s] > DEPENDENT) best = max(best, (u64)__float_as_uint(fabsf(correlation[s])) << 32 | (u32)~(u32)(s * LANES + lane));
        for (int d = LANES / 2; d; d /= 2) best = max(best, __shfl_xor_sync(~0u, best, d));
        const int pick = t ? (best ? (int)(u32)~(u32)best : 0) : start, owner = pick % LANES, slot = pick / LANES;
        float mine = 0, rest = 0;
        i64 which = 0;
        for (int s = 0; s < SLOTS; ++s)
            if (s == slot) mine = correlation[s], rest = left[s], which = unit[s];
        mine = __shfl_sync(~0u, mine, owner), rest = __shfl_sync(~0u, rest, owner), which = __shfl_sync(~0u, which, owner);
        const bool useful = !t || (best && fabsf(mine) > NOTHING_LEFT * largest);
        const float root = useful ? sqrtf(fmaxf(rest, 1e-30f)) : 1, part = useful ? mine / root : 0;
        for (int s = 0; s < SLOTS; ++s) {
            float column = unit[s] < 0 || !useful ? 0 : to_float(gram[which * units + unit[s]]);
            for (int before = 0; before < t; ++before) {
                float other = 0;
                for (int n = 0; n < SLOTS; ++n)
                    if (n == slot) other = V[before][n];
                column -= V[before][s] * __shfl_sync(~0u, other, owner);
            }
            V[t][s] = useful ? column / root : 0;
            correlation[s] -= V[t][s] * part;
            left[s] -= V[t][s] * V[t][s];
            if (useful && s * LANES + lane == pick) left[s] = 0;
        }
        chosen[t] = pick, zeta[t] = part, diagonal[t] = root;
        if (lane == 0) out_unit[row * ENTRIES + t] = useful ? which : 0;
    }
#pragma unroll
    for (int t = ENTRIES - 1; t >= 0; --t) {  // R·w = ζ
        float value = zeta[t];
        for (int later = t + 1; later < ENTRIES; ++later) {
            float other = 0;
            for (int n = 0; n < SLOTS; ++n)
                if (n == chosen[later] / LANES) other = V[t][n];
            value -= __shfl_sync(~0u, other, chosen[later] % LANES) * weight[later];
        }
        weight[t] = value / diagonal[t];
        if (lane == 0) out_weight[row * ENTRIES + t] = weight[t];
    }
}

// Bytes b of packed bits: bit f of a byte of a chunk is bit 16·f + byte of it (residual.py). from: of each bit, dimension · 8 + shift.
__device__ void pack(const u8* fields, const int* from, i64 bytes, u8* out) {
    for (i64 b = threadIdx.x; b < bytes; b += blockDim.x) {
        u32 packed = 0;
        for (int f = 0; f < 8; ++f) {
            const int source = from[b / 16 * 128 + f * 16 + b % 16];
            if (source >= 0) packed |= (u32)(fields[source / 8] >> source % 8 & 1) << f;
        }
        out[b] = (u8)packed;
    }
}

// Codes of rotated vectors Z, whose units and weights are known: weights of one byte, bits of what they leave out, and one byte a
// dimension of what these leave out. A block has one row. A dimension belongs to one thread; its field is in `refinement` meanwhile.
extern "C" __global__ void encode(float* Z, i64 dim, i64 coded, const float* Y, const i64* unit, const float* weight, int entries,
                                  const float* deviation, const float* step, const u8* bits, const int* sign_from, i64 sign_bytes,
                                  const int* low_from, i64 low_bytes, signed char* rounded, float* scale, float* factor, float* square,
                                  u8* sign_bits, u8* low_bits, u8* refinement, float* refinement_scale) {
    __shared__ float parts[LANES];
    const i64 row = blockIdx.x;
    float* z = Z + row * dim;
    u8* fields = refinement + row * dim;
    float largest = 1e-30f;
    for (int e = 0; e < entries; ++e) largest = fmaxf(largest, fabsf(weight[row * entries + e]));
    const float unit_of_weights = largest / 127;
    double squares = 0;
    float own = 0, relative = 0;
    for (i64 j = threadIdx.x; j < dim; j += blockDim.x) {
        float x = z[j];
        squares += (double)x * x;
        for (int e = 0; e < entries; ++e)
            x -= rintf(weight[row * entries + e] / unit_of_weights) * unit_of_weights * Y[unit[row * entries + e] * dim + j];
        z[j] = x;
        if (j < coded) own += x * x, relative += x / deviation[j] * (x / deviation[j]);
    }
    squares = block_sum(squares), own = block_sum(own), relative = block_sum(relative);
    const float spread = coded ? sqrtf(relative / coded) : 0;
    float norm = 0;
    for (i64 j = threadIdx.x; j < coded; j += blockDim.x) {
        const float half = 1 << (bits[j] - 1);
        const float level = spread > 1e-30f ? fminf(fmaxf(floorf(z[j] / (step[j] * spread)), -half), half - 1) : 0;
        fields[j] = (u8)(level + half);
        norm += (level + 0.5f) * step[j] * ((level + 0.5f) * step[j]);
    }
    norm = sqrtf(block_sum(norm));
    const float times = spread > 1e-30f ? sqrtf(own) / fmaxf(norm, 1e-30f) : 0;
    pack(fields, sign_from, sign_bytes, sign_bits + row * sign_bytes);
    pack(fields, low_from, low_bytes, low_bits + row * low_bytes);
    float most = 0;
    for (i64 j = threadIdx.x; j < dim; j += blockDim.x) {
        if (j < coded) z[j] -= (fields[j] - (float)((1 << bits[j]) - 1) / 2) * step[j] * times;
        most = fmaxf(most, fabsf(z[j]));
    }
    for (int d = LANES / 2; d; d /= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, d));
    if (threadIdx.x % LANES == 0) parts[threadIdx.x / LANES] = most;
    __syncthreads();  // all fields are packed
    for (int w = 0; w < (int)blockDim.x / LANES; ++w) most = fmaxf(most, parts[w]);
    most = fmaxf(most / 127, 1e-30f);
    for (i64 j = threadIdx.x; j < dim; j += blockDim.x) refinement[row * dim + j] = (u8)(signed char)rintf(z[j] / most);
    if (threadIdx.x < entries) rounded[row * entries + threadIdx.x] = (signed char)rintf(weight[row * entries + threadIdx.x] / unit_of_weights);
    if (threadIdx.x) return;
    scale[row] = unit_of_weights, factor[row] = times, square[row] = (float)squares, refinement_scale[row] = most;
}
