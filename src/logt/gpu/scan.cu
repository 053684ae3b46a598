// The scan of lists on a GPU: which lists queries read, the scores of their vectors, and the best of these with their refinement.
// Compiled together with vectors.cu, which comes first.
constexpr int ROWS = 16;    // vectors of a tile of codes
constexpr int COLUMNS = 4;  // tiles of 8 queries that a warp multiplies at a time
constexpr int MOST_THREADS = 512;
constexpr int QUERIES = 8 * COLUMNS;
constexpr int FETCHED = BITS <= 4 ? 2 : 1;  // blocks of dimensions that are fetched while others are multiplied

// ------------------------------------------------------------------------------------------------------------ plan

// The score by which lists are ranked, in the order of floats.
__device__ u32 rank_of_list(const float* products, const float* weight, const float* bias, i64 unit) {
    return rank_of(__fadd_rn(__fmul_rn(products[unit], weight[unit]), bias[unit]));
}

// Sums of values of the threads before each, and of all threads.
template <int N>
__device__ void block_sums_before(i64 (&value)[N], i64 (&total)[N]) {
    __shared__ i64 sums[N][LANES];
    const int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES, warps = blockDim.x / LANES;
    __syncthreads();
    for (int n = 0; n < N; ++n) {
        i64 sum = value[n];
        for (int d = 1; d < LANES; d *= 2) {
            const i64 other = __shfl_up_sync(~0u, sum, d);
            if (lane >= d) sum += other;
        }
        if (lane == LANES - 1) sums[n][warp] = sum;
        value[n] = sum - value[n];
    }
    __syncthreads();
    for (int n = 0; n < N; ++n) {
        total[n] = 0;
        for (int w = 0; w < warps; ++w) {
            if (w == warp) value[n] += total[n];
            total[n] += sums[n][w];
        }
    }
}

// Which lists queries read: those whose score is at most `margin` deviations less than the best one, and the best ones until they are
// `width` lists, hold `least` vectors, and `enough` that can be found. margin: or negative, then none are read because they are near.
// limit: the rank that they have at least. totals: how many there are, their positions, and the tasks of a scan, of each query;
// what is in no list, the list `units`, is always read if there are `others`. A block has one query.
extern "C" __global__ void near_lists(const float* products, i64 units, const float* weight, const float* bias, const float* whole,
                                      i64 dim, const float* variance, float margin, i64 width, i64 least, i64 enough, int others,
                                      const i64* tiles_of, const i64* rows_of, const i64* visible_of, int task_tiles,
                                      const bool* wrong, u32* limit, i64* totals) {
    __shared__ u32 counts[3][DIGITS], highest, prefix;
    __shared__ i64 above[3];  // the prefix: lists, vectors, and those that can be found
    const i64 q = blockIdx.x, needed[3] = {width, least, enough};
    const float* mine = products + q * units;
    if (threadIdx.x == 0) highest = 0, prefix = 0, above[0] = above[1] = above[2] = 0;
    __syncthreads();
    u32 best = 0;
    for (i64 j = threadIdx.x; j < units; j += blockDim.x) best = max(best, rank_of_list(mine, weight, bias, j));
    atomicMax(&highest, best);
    float square = 0;
    for (i64 j = threadIdx.x; j < dim; j += blockDim.x) square += whole[q * dim + j] * whole[q * dim + j] * variance[j];
    square = block_sum(square);
    const float score = __uint_as_float(highest >> 31 ? highest & 0x7fffffff : ~highest), nearest = score - margin * sqrtf(square);
    u32 from = margin >= 0 && nearest == nearest ? rank_of(nearest) : ~0u;
    i64 sums[5], kept[5];  // as `above`, then positions and tasks
    const auto count = [&] {
        for (int n = 0; n < 5; ++n) kept[n] = 0;
        for (i64 j = threadIdx.x; j < units; j += blockDim.x) {
            if (rank_of_list(mine, weight, bias, j) < from) continue;
            const i64 tiles = tiles_of[j];
            kept[0] += 1, kept[1] += rows_of[j], kept[2] += visible_of[j];
            kept[3] += tiles * ROWS, kept[4] += (tiles + task_tiles - 1) / task_tiles;
        }
        block_sums_before(kept, sums);
    };
    count();
    if (sums[0] < needed[0] || sums[1] < needed[1] || sums[2] < needed[2]) {  // the rank is found digit by digit, as in `best`
        for (int digit = 0; digit < 3; ++digit) {
            const int bits = digit < 2 ? 11 : 10, shift = digit == 0 ? 21 : digit == 1 ? 10 : 0;
            for (int i = threadIdx.x; i < 3 * DIGITS; i += blockDim.x) counts[i / DIGITS][i % DIGITS] = 0;
            __syncthreads();
            const u32 known = prefix;
            for (i64 j = threadIdx.x; j < units; j += blockDim.x) {
                const u32 rank = rank_of_list(mine, weight, bias, j), at = rank >> shift & ((1u << bits) - 1);
                if (digit && rank >> (shift + bits) != known) continue;
                atomicAdd(&counts[0][at], 1), atomicAdd(&counts[1][at], (u32)rows_of[j]), atomicAdd(&counts[2][at], (u32)visible_of[j]);
            }
            __syncthreads();
            if (threadIdx.x < LANES) {  // from the largest digit on, 32 at a time
                i64 more[3] = {above[0], above[1], above[2]};
                for (int at = (1 << bits) - 1 - (int)threadIdx.x;; at -= LANES) {
                    bool all = true;
                    i64 sum[3];
                    for (int n = 0; n < 3; ++n) {
                        sum[n] = counts[n][at];
                        for (int d = 1; d < LANES; d *= 2) {
                            const i64 other = __shfl_up_sync(~0u, sum[n], d);
                            if ((int)threadIdx.x >= d) sum[n] += other;
                        }
                        all &= more[n] + sum[n] >= needed[n];
                    }
                    const u32 reached = __ballot_sync(~0u, all);
                    const bool last = at - (int)(LANES - 1 - threadIdx.x) == 0;  // all lists are not enough
                    if (reached || last) {
                        if ((int)threadIdx.x == (reached ? __ffs((int)reached) - 1 : LANES - 1)) {
                            prefix = known << bits | (u32)at;
                            for (int n = 0; n < 3; ++n) above[n] = more[n] + sum[n] - counts[n][at];
                        }
                        break;
                    }
                    for (int n = 0; n < 3; ++n) more[n] += __shfl_sync(~0u, sum[n], LANES - 1);
                }
            }
            __syncthreads();
        }
        from = prefix;
        count();
    }
    if (threadIdx.x) return;
    const bool none = wrong[q];
    limit[q] = from;
    totals[q] = none ? 0 : sums[0] + others;
    totals[gridDim.x + q] = none ? 0 : sums[3] + (others ? tiles_of[units] * ROWS : 0);
    totals[2 * gridDim.x + q] = none ? 0 : sums[4] + (others ? (tiles_of[units] + task_tiles - 1) / task_tiles : 0);
}

// The totals of all queries before each, and of all: what each starts with. One block. If they read more than `most` lists or
// `capacity` positions, nothing is read, and all queries are marked in `wrong`.
extern "C" __global__ void sum_totals(const i64* totals, i64 count, i64 most, i64 capacity, bool* wrong, i64* out) {
    i64 before[3] = {};
    for (i64 start = 0; start < count; start += blockDim.x) {
        const i64 q = start + threadIdx.x;
        i64 value[3], total[3];
        for (int n = 0; n < 3; ++n) value[n] = q < count ? totals[n * count + q] : 0;
        block_sums_before(value, total);
        for (int n = 0; n < 3; ++n) {
            if (q < count) out[n * (count + 1) + q] = before[n] + value[n];
            before[n] += total[n];
        }
    }
    const bool fits = before[0] <= most && before[1] <= capacity;
    __syncthreads();
    if (threadIdx.x < 3) out[threadIdx.x * (count + 1) + count] = before[threadIdx.x];
    if (fits) return;
    __syncthreads();
    for (i64 i = threadIdx.x; i < 3 * (count + 1); i += blockDim.x) out[i] = 0;
    for (i64 q = threadIdx.x; q < count; q += blockDim.x) wrong[q] = true;
}

// The lists that queries read: of each its first tile, its tiles, where its scores are written, the number of tasks before it, and
// the query. before: as of sum_totals. most: lists that there is space for. A block has one query.
extern "C" __global__ void plan(const float* products, i64 units, const float* weight, const float* bias, const u32* limit,
                                const i64* before, int others, const i64* tile_of, const i64* tiles_of, int task_tiles, i64 most,
                                i64* list, i64* tile, i64* tiles, i64* place, i64* first_task, int* query) {
    const i64 q = blockIdx.x, next = gridDim.x + 1;
    const float* mine = products + q * units;
    i64 at[3] = {before[q], before[next + q], before[2 * next + q]};
    const u32 from = limit[q];
    for (i64 start = 0; before[q + 1] > before[q] && start < units + others; start += blockDim.x) {
        const i64 j = start + threadIdx.x;
        const bool kept = j < units ? rank_of_list(mine, weight, bias, j) >= from : j < units + others;
        const i64 size = kept ? tiles_of[j] : 0;
        i64 value[3] = {kept, size * ROWS, (size + task_tiles - 1) / task_tiles}, total[3];
        block_sums_before(value, total);
        if (kept) {
            const i64 n = at[0] + value[0];
            list[n] = j, tile[n] = tile_of[j], tiles[n] = size, query[n] = (int)q;
            place[n] = at[1] + value[1], first_task[n] = at[2] + value[2];
        }
        for (int n = 0; n < 3; ++n) at[n] += total[n];
    }
    const i64 lists = before[gridDim.x], tasks = before[2 * next + gridDim.x];
    for (i64 n = lists + q * blockDim.x + threadIdx.x; n <= most; n += (i64)gridDim.x * blockDim.x) first_task[n] = tasks;
}

// ------------------------------------------------------------------------------------------------------------ scan

// A tile of codes has, for each 32 dimensions, what lane 4·g + t of a warp reads: for each bit, from the highest on, that of
// dimensions 8·t to 8·t + 7 of row g, the lowest first, and then of row g + 8.

__device__ u32 subtract(u32 a, u32 b) {
    u32 result;
    asm("sub.f16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
    return result;
}

__device__ void multiply(float (&sum)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// Numbers of `bits` bits, less their mean, as float16, two at a time: eight of the upper row and eight of the lower one.
__device__ void decode(const u32 (&word)[BITS], int bits, u32 (&upper)[4], u32 (&lower)[4]) {
    u32 number[8] = {};
#pragma unroll
    for (int p = 0; p < BITS; ++p) {
        if (p >= bits) break;
#pragma unroll
        for (int j = 0; j < 8; ++j) {
            const u32 pair = word[p] >> (2 * j) & 3;
            number[j] = number[j] * 2 + ((pair | pair << 15) & 0x00010001u);
        }
    }
    // 512 + n is a float16 with n in its mantissa, whose last bit is 1/2
    const u32 middle = (0x6000u | ((1u << bits) - 1)) * 0x00010001u;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
        upper[j] = bits ? subtract(number[j] * 2 + 0x60006000u, middle) : 0;
        lower[j] = bits ? subtract(number[j + 4] * 2 + 0x60006000u, middle) : 0;
    }
}

// Scores of vectors for queries. A group compares the vectors of some tiles with some queries, and a task is a part of a group.
// Lane 4·g + t of a warp has rows g and g + 8 of a tile and, of each 32 dimensions, those from 8·t on: both sides of a product
// have them in the same order, so that the order within it does not matter.
extern "C" __global__ void __launch_bounds__(MOST_THREADS, 2) scan(
    // vectors: blocks of 32 dimensions, where they start in a tile, and bits per 8 dimensions; stretch: of scores, or null
    const u8* codes, i64 tile_bytes, int blocks, const int* plane_offset, const u8* bits, const UNIT* units, const signed char* weights,
    const float* scales, const float* factors, const float* biases, const float* stretches,
    // queries: values for the codes as float16, (count, 32·blocks), and their step; products with all units, which are as far
    // apart as stated; part of all scores
    const unsigned short* values, const float* steps, const float* products, i64 next_query, i64 next_unit, const float* offsets,
    // groups: tasks before each, tiles, and pairs, or null: one each; of each pair, its query and where its scores start
    int group_count, const i64* first_task, const i64* first_tile, const i64* tile_count, const i64* first_pair,
    const i64* pair_count, const int* query_of, const i64* place_of, int task_tiles, float* out) {
    __shared__ struct {
        float step[QUERIES], offset[QUERIES];
        const float* products[QUERIES];
        float* out[QUERIES];
        const uint4* values[QUERIES];
    } mine;
    const int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES, g = lane / 4, t = lane % 4;
    const i64 tasks = first_task[group_count];
    int group = 0;
    for (i64 task = blockIdx.x; task < tasks; task += gridDim.x) {
        int end = group_count;  // the group of the task is in group..end-1
        while (end - group > 1) {
            const int middle = (group + end) / 2;
            if (first_task[middle] <= task) group = middle;
            else end = middle;
        }
        const i64 part = task - first_task[group], across = (tile_count[group] + task_tiles - 1) / task_tiles;
        const i64 first = part / across * QUERIES, pair = (first_pair ? first_pair[group] : group) + first;
        const int count = first_pair ? (int)min((i64)QUERIES, pair_count[group] - first) : 1, columns = (count + 7) / 8;
        __syncthreads();
        if (threadIdx.x < QUERIES) {
            const i64 n = pair + min((int)threadIdx.x, count - 1), q = query_of[n];
            mine.step[threadIdx.x] = steps[q], mine.offset[threadIdx.x] = offsets[q];
            mine.products[threadIdx.x] = products + q * next_query;
            mine.out[threadIdx.x] = out + place_of[n];
            mine.values[threadIdx.x] = (const uint4*)(values + q * blocks * 32);
        }
        __syncthreads();
        const i64 last_tile = min(tile_count[group], (part % across + 1) * task_tiles);
        for (i64 tile = part % across * task_tiles + warp; tile < last_tile; tile += blockDim.x / LANES) {
            float sum[COLUMNS][4] = {};
            const i64 at = first_tile[group] + tile;
            const u8* code = codes + at * tile_bytes;
            const uint4* values_of[COLUMNS];
#pragma unroll
            for (int c = 0; c < COLUMNS; ++c) values_of[c] = mine.values[8 * c + g] + t;
            u32 next[FETCHED][BITS], word[FETCHED][BITS];
            auto fetch = [&](int first) {
#pragma unroll
                for (int a = 0; a < FETCHED; ++a) {
                    const int b = min(first + a, blocks - 1), from = plane_offset[b];
                    const int planes = (plane_offset[b + 1] - from) / (2 * LANES);
                    const u16* words = (const u16*)(code + from) + lane * planes;
#pragma unroll
                    for (int p = 0; p < BITS; ++p) next[a][p] = p < planes ? words[p] : 0;
                }
            };
            fetch(0);
            for (int start = 0; start < blocks; start += FETCHED) {
#pragma unroll
                for (int a = 0; a < FETCHED; ++a)
#pragma unroll
                    for (int p = 0; p < BITS; ++p) word[a][p] = next[a][p];
                if (start + FETCHED < blocks) fetch(start + FETCHED);  // while these are multiplied
#pragma unroll
                for (int a = 0; a < FETCHED; ++a) {
                    const int b = start + a;
                    if (b >= blocks) break;
                    u32 upper[4], lower[4];
                    decode(word[a], bits[4 * b + t], upper, lower);
#pragma unroll
                    for (int c = 0; c < COLUMNS; ++c) {
                        if (c >= columns) break;
                        const uint4 v = values_of[c][4 * b];
                        multiply(sum[c], upper[0], lower[0], upper[1], lower[1], v.x, v.y);
                        multiply(sum[c], upper[2], lower[2], upper[3], lower[3], v.z, v.w);
                    }
                }
            }
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const i64 row = tile * ROWS + g + 8 * half, position = at * ROWS + g + 8 * half;
                const float factor = factors[position], scale = scales[position], bias = biases[position];
                const float stretch = stretches ? stretches[position] : 1;
                u32 unit[ENTRIES];
                float weight[ENTRIES];
                for (int e = 0; e < ENTRIES; ++e) {
                    unit[e] = (u32)(units[position * ENTRIES + e] * next_unit);
                    weight[e] = scale * weights[position * ENTRIES + e];
                }
#pragma unroll
                for (int c = 0; c < COLUMNS; ++c)
                    for (int side = 0; side < 2; ++side) {
                        const int n = 8 * c + 2 * t + side;
                        if (n >= count) break;
                        float score = sum[c][2 * half + side] * factor * mine.step[n] + mine.offset[n];
                        const float* of_units = mine.products[n];
                        for (int e = 0; e < ENTRIES; ++e) score += weight[e] * of_units[unit[e]];
                        mine.out[n][row] = score * stretch + bias;
                    }
            }
        }
    }
}

// ------------------------------------------------------------------------------------------------------------ hide

// Biases by which only vectors that pass are found, and how many of each list those are. number: of the vector at each position in
// `passing`, -1 for none. A warp has HIDDEN tiles, and half of it one at a time.
extern "C" __global__ void hide(const u8* passing, const int* number, const float* biases, const i64* tile_of, i64 lists, i64 tiles,
                                float* out, i64* visible) {
    const int lane = threadIdx.x % LANES, side = lane / ROWS;
    const i64 first = ((i64)blockIdx.x * blockDim.x + threadIdx.x) / LANES * HIDDEN, last = min(first + HIDDEN, tiles);
    if (first >= tiles) return;
    i64 list = 0, end = lists;  // the list of the tile is in list..end-1
    while (end - list > 1) {
        const i64 middle = (list + end) / 2;
        if (tile_of[middle] <= first) list = middle;
        else end = middle;
    }
    i64 count = 0;
    for (i64 pair = first; pair < last; pair += 2) {
        const i64 tile = pair + side, position = tile * ROWS + lane % ROWS;
        bool seen = false;
        if (tile < last) {
            const float bias = biases[position];
            const int n = number[position];
            seen = n >= 0 && passing[n] && bias > -__int_as_float(0x7f800000);
            out[position] = seen ? bias : -__int_as_float(0x7f800000);
        }
        const u32 votes = __ballot_sync(~0u, seen);
        while (tile < last && list + 1 < lists && tile_of[list + 1] <= tile) {
            if (lane % ROWS == 0 && count) atomicAdd((u64*)&visible[list], (u64)count);
            ++list, count = 0;
        }
        count += __popc(votes >> (side * ROWS) & 0xFFFF);
    }
    if (lane % ROWS == 0 && count) atomicAdd((u64*)&visible[list], (u64)count);
}

// --------------------------------------------------------------------------------------------------------- collect

// The candidates whose scores were written at some places: their estimates, their scores with the refinement, and their ids. A warp
// has one candidate. begin: where the lists of each query start in `list`; null: all positions were compared
extern "C" __global__ void collect(const i64* at, i64 count, int wanted, const float* written, const i64* place, const i64* begin,
                                   const i64* list, const i64* tile_of, i64 positions, const signed char* refinement, const float* refinement_scale,
                                   const float* stretch, i64 stride, const float* whole, i64 dim, const i64* ids, float* estimates,
                                   float* scores, i64* found) {
    const i64 n = ((i64)blockIdx.x * blockDim.x + threadIdx.x) / LANES;
    if (n >= count) return;
    const int lane = threadIdx.x % LANES;
    const i64 q = n / wanted, where = at[n];
    const float estimate = where < 0 ? -__int_as_float(0x7f800000) : written[where];
    const bool any = estimate > -__int_as_float(0x7f800000);
    i64 position = 0;
    if (any && begin) {
        i64 low = begin[q], high = begin[q + 1];  // the last pair that starts at or before it
        while (high - low > 1) {
            const i64 middle = (low + high) / 2;
            if (place[middle] <= where) low = middle;
            else high = middle;
        }
        position = tile_of[list[low]] * ROWS + where - place[low];
    } else if (any) {
        position = where - q * positions;
    }
    float sum = 0;
    if (any && refinement) {
        const signed char* code = refinement + position * stride;
        const float* values = whole + q * dim;
        for (i64 j = 4 * lane; j < dim; j += 4 * LANES) {
            const char4 four = *(const char4*)(code + j);
            sum += four.x * values[j];
            if (j + 1 < dim) sum += four.y * values[j + 1];
            if (j + 2 < dim) sum += four.z * values[j + 2];
            if (j + 3 < dim) sum += four.w * values[j + 3];
        }
        for (int d = LANES / 2; d; d /= 2) sum += __shfl_xor_sync(~0u, sum, d);
        sum *= refinement_scale[position] * (stretch ? stretch[position] : 1);
    }
    if (lane) return;
    estimates[n] = estimate, scores[n] = estimate + sum, found[n] = any ? ids[position] : -1;
}
