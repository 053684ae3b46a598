// The scan of lists on a GPU: which lists queries read, the scores of their vectors, and the best of these with their refinement.
// Compiled together with vectors.cu, which comes first.
constexpr int ROWS = 16;    // vectors of a tile of codes
constexpr int COLUMNS = 4;  // tiles of 8 queries that a warp multiplies at a time
constexpr int MOST_THREADS = 512;
constexpr int QUERIES = 8 * COLUMNS;
constexpr int FETCHED = BITS <= 4 ? 2 : 1;  // blocks of dimensions that are fetched while others are multiplied

// ------------------------------------------------------------------------------------------------------------ plan

__device__ i64 warp_sum_before(i64 value, i64& total) {
    const int lane = threadIdx.x % LANES;
    i64 sum = value;
    for (int d = 1; d < LANES; d *= 2) {
        const i64 other = __shfl_up_sync(~0u, sum, d);
        if (lane >= d) sum += other;
    }
    total = __shfl_sync(~0u, sum, LANES - 1);
    return sum - value;
}

// How unlike the collection queries are, by their largest cosine with a memory vector: how many of the two bounds are above it.
// A block has one query.
extern "C" __global__ void levels(const float* products, i64 units, const float* unit_norm, const float* whole, i64 dim, float some,
                                  float few, signed char* out) {
    __shared__ float best[LANES], square[LANES];
    const int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES, warps = blockDim.x / LANES;
    const float *mine = products + blockIdx.x * units, *query = whole + blockIdx.x * dim;
    float most = -__int_as_float(0x7f800000), sum = 0;
    for (i64 j = threadIdx.x; j < units; j += blockDim.x) most = fmaxf(most, mine[j] / unit_norm[j]);
    for (i64 j = threadIdx.x; j < dim; j += blockDim.x) sum += query[j] * query[j];
    for (int d = LANES / 2; d; d /= 2) {
        most = fmaxf(most, __shfl_xor_sync(~0u, most, d));
        sum += __shfl_xor_sync(~0u, sum, d);
    }
    if (lane == 0) best[warp] = most, square[warp] = sum;
    __syncthreads();
    if (threadIdx.x) return;
    for (int w = 1; w < warps; ++w) most = fmaxf(most, best[w]), sum += square[w];
    const float cosine = most / sqrtf(sum);
    out[blockIdx.x] = !(cosine >= some) + !(cosine >= few);
}

// The lists that few queries read, from those that are best for each: the first `width` for the level of the query, and more until they hold `least` vectors
// and `enough` that can be found; then what is in no list, if `others`. Each is a group of a scan. One block. If they hold more than
// `capacity` positions, nothing is read, and all queries are marked in `wrong`.
extern "C" __global__ void plan(const i64* chosen, i64 units, int count, int widest, int width, int width_some, int width_few,
                                const signed char* level, i64 least, i64 enough, int others,
                                const i64* tile_of, const i64* tiles_of, const i64* rows_of, const i64* visible_of, int task_tiles,
                                i64 capacity, bool* wrong, i64* list, i64* tile, i64* tiles, i64* place, i64* first_task, int* query, i64* first, i64* last) {
    __shared__ i64 sums[2][LANES], before[2];
    const int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES, warps = blockDim.x / LANES, columns = widest + others;
    for (int q = warp; q < count; q += warps) {
        i64 read = 0, seen = 0;
        const int mine_width = level[q] == 0 ? width : level[q] == 1 ? width_some : width_few;
        for (int start = 0; start < widest; start += LANES) {
            const int j = start + lane;
            const i64 mine = j < widest ? chosen[(i64)q * widest + j] - q * units : 0;
            i64 more_read, more_seen;
            const i64 read_before = read + warp_sum_before(j < widest ? rows_of[mine] : 0, more_read);
            const i64 seen_before = seen + warp_sum_before(j < widest ? visible_of[mine] : 0, more_seen);
            const bool kept = j < mine_width || read_before < least || seen_before < enough;
            if (j < widest) {
                const i64 at = (i64)q * columns + j;
                list[at] = kept ? mine : -1, tile[at] = tile_of[mine], tiles[at] = kept ? tiles_of[mine] : 0, query[at] = q;
            }
            read += more_read, seen += more_seen;
        }
        if (others && lane == 0) {
            const i64 at = (i64)q * columns + widest;
            list[at] = units, tile[at] = tile_of[units], tiles[at] = tiles_of[units], query[at] = q;
        }
    }
    if (threadIdx.x < 2) before[threadIdx.x] = 0;
    __syncthreads();
    const i64 pairs = (i64)count * columns;
    for (i64 start = 0; start < pairs; start += blockDim.x) {
        const i64 at = start + threadIdx.x, mine = at < pairs ? tiles[at] : 0;
        const i64 amount[2] = {mine * ROWS, (mine + task_tiles - 1) / task_tiles};
        i64 sum[2], total;
        for (int n = 0; n < 2; ++n) {
            sum[n] = warp_sum_before(amount[n], total);
            if (lane == 0) sums[n][warp] = total;
        }
        __syncthreads();
        for (int n = 0; n < 2; ++n) {
            sum[n] += before[n];
            for (int w = 0; w < warp; ++w) sum[n] += sums[n][w];
        }
        if (at < pairs) {
            place[at] = sum[0], first_task[at] = sum[1];
            if (at % columns == 0) first[at / columns] = sum[0];
            if (at % columns == columns - 1) last[at / columns] = sum[0] + amount[0];
            if (at == pairs - 1) place[pairs] = sum[0] + amount[0], first_task[pairs] = sum[1] + amount[1];
        }
        __syncthreads();
        if (threadIdx.x < 2)
            for (int w = 0; w < warps; ++w) before[threadIdx.x] += sums[threadIdx.x][w];
        __syncthreads();
    }
    if (before[0] <= capacity) return;
    for (i64 at = threadIdx.x; at < pairs; at += blockDim.x) tiles[at] = 0;
    for (i64 at = threadIdx.x; at <= pairs; at += blockDim.x) place[at] = 0, first_task[at] = 0;
    for (int q = threadIdx.x; q < count; q += blockDim.x) first[q] = last[q] = 0, wrong[q] = true;
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
// has one candidate. columns: lists of each query; 0: all positions were compared
extern "C" __global__ void collect(const i64* at, i64 count, int wanted, const float* written, const i64* place, int columns, const i64* list,
                                   const i64* tile_of, i64 positions, const signed char* refinement, const float* refinement_scale,
                                   const float* stretch, i64 stride, const float* whole, i64 dim, const i64* ids, float* estimates,
                                   float* scores, i64* found) {
    const i64 n = ((i64)blockIdx.x * blockDim.x + threadIdx.x) / LANES;
    if (n >= count) return;
    const int lane = threadIdx.x % LANES;
    const i64 q = n / wanted, where = at[n];
    const float estimate = where < 0 ? -__int_as_float(0x7f800000) : written[where];
    const bool any = estimate > -__int_as_float(0x7f800000);
    i64 position = 0;
    if (any && columns) {
        i64 low = q * columns, high = low + columns;  // the last pair that starts at or before it
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
