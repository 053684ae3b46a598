// The default index: inverted lists of sparse codes and residual bits. Arrays belong to Python; these structs point to them.
//
// Everything is in the rotated domain: z = rotate(x - mean), a permutation of the dimensions followed by a random
// rotation within each band of dimensions. A vector is z = sum_t weight_t * y[unit_t] + residual; its first entry is the
// unit whose list it is in. The residual keeps bits[band] bits per dimension, most significant bits first: `sign_bits`
// are the signs of all coded dimensions, `low_bits` the other bits, plane by plane. What those leave out may be kept in
// one byte per dimension, the `refinement`.
#pragma once
#include <cstddef>
#include <cstdint>

#include "neighbor_lists.hpp"

namespace logt {

constexpr size_t CHUNK = 16;    // bytes of a code that are one unit of the layout: bit f of byte b is bit f * 16 + b
constexpr size_t MAX_BITS = 8;  // per dimension
constexpr size_t MARGINS = 17;  // exponents from 0 to 1 for which margins are known

struct Band {
    size_t start, size;  // dimensions, after the permutation
    size_t bits;
    float deviation;       // of the residual's coordinates, for a vector of factor 1
    float book_deviation;  // of the memory vectors' coordinates, for one of scale 1
};

struct Codec {
    size_t dim, units, groups, bands;
    const float* mean;       // dim
    const int32_t* order;    // dim: dimension order[j] becomes the j-th
    const float* signs;      // rounds * dim
    size_t rounds;
    const Band* band;
    const uint8_t* book;     // (units + groups, book_bytes): 4-bit coordinates, chunks of 16 bytes: low halves, then high halves
    size_t book_bytes;
    const float* book_scale;   // units + groups
    const float* list_weight;  // units + groups: list_weight * c + list_bias ranks lists, and groups of units
    const float* list_bias;
    const int64_t* group_starts;  // groups + 1: the units of each group
    size_t compared;              // units of the best groups that are compared with a query, at least
    const float* margins;  // (2, MARGINS): how far below the best list, and below the worst result, lists are read; or null
    float near;            // a query whose worst result scores at least this, in deviations of the query, is like the collection
    size_t sign_count, low_count, sign_bytes, low_bytes;
};

// A vector as a walk on the graph meets it: where it is, and a copy of its code, which is in many places otherwise.
// Positions are counted over all segments. Aligned, so that each is in one cache line.
struct alignas(32) GraphNode {
    static constexpr size_t ENTRIES = 4;  // unused ones are 0
    uint32_t position;                    // or NONE
    uint16_t unit[ENTRIES];
    int8_t weight[ENTRIES];
    float scale, factor, bias;
};

struct ListSegment {
    size_t codec;
    size_t rows, entries;
    const int64_t* starts;  // units + 1, or null: a small segment without lists, whose first units are stored too
    const void* unit;       // (entries - 1, rows), or (entries, rows) without lists: uint16, or uint32 if wide
    bool wide;
    const int8_t* weight;  // (entries, rows)
    const float* scale;    // rows: of the weights
    const float* factor;   // rows: of the residual
    const float* bias;     // rows: added to the estimate, or null
    const uint8_t* sign_bits;   // (rows, sign_bytes)
    const uint8_t* low_bits;   // (rows, low_bytes)
    const int8_t* refinement;       // (rows, dim) by row, or null
    const float* refinement_scale;  // by row
    const uint32_t* row;     // the row of each position
    const int64_t* ids;      // by row, increasing
    const uint8_t* visible;  // by row: 0 hides it; or null: all are visible
    size_t count;            // visible rows
    const uint32_t* residual;  // the row of `sign_bits` and `low_bits` for each position, or null: they are in the same order

    bool fits_node() const { return entries <= GraphNode::ENTRIES && !wide; }
    size_t unit_of(size_t entry, size_t p) const {
        const size_t at = entry * rows + p;
        return wide ? static_cast<const uint32_t*>(unit)[at] : static_cast<const uint16_t*>(unit)[at];
    }
};

// How much a search reads: lists that are near enough to the best one or, round by round, to the worst result (readers.hpp).
struct ScanLimits {
    double lists = 0;        // of a codec, a query like the collection decodes units^lists lists ...
    size_t nprobe = 0;       // ... or each so many, if not 0
    size_t least = 0;        // and further ones until so many vectors are
    float code_reach = 0;    // deviations of the residual by which a vector may exceed the estimate of its code
    float sign_reach = 0;    // deviations of the residual by which it may exceed the estimate of its sign_bits
    float walk_reach = 0;    // as code_reach, for neighbors in the graph
    size_t candidates = 0;   // kept for the refinement, at least
    size_t beam = 0;         // candidates whose neighbors in the graph are read too, if there is a graph
    bool everything = false;  // read all bits of all vectors
    double further = 0;      // as lists, for those that are read after the first round
    size_t results = 0;      // the worst of so many tells which lists are read after the first round; 0: there is one round
};

// The vectors of one segment in the neighbor graph.
struct SegmentNodes {
    const uint32_t* node;       // by position, or NONE; null: none is a node
    const GraphNode* unlinked;  // those in lists that are no nodes, by increasing position in the segment
    size_t unlinked_count;
};

// The neighbor graph of the vectors of all segments: each node is a vector.
struct Graph {
    static constexpr uint32_t NONE = NeighborLists::NONE;
    NeighborLists lists;         // by node
    const GraphNode* nodes;      // by number
    const uint8_t* removed;      // by number, or null: none is
    const SegmentNodes* parts;   // by segment
    size_t segment_count;
    size_t unlinked_count;       // of all segments
    const size_t* first;         // segments + 1: the first position of each segment

    bool holds(uint32_t node) const { return nodes[node].position != NONE && !(removed && removed[node]); }
    uint32_t node_of(uint32_t segment, uint32_t p) const { return parts[segment].node ? parts[segment].node[p] : NONE; }
    uint32_t segment_of(uint32_t position) const {
        uint32_t segment = 0;
        while (first[segment + 1] <= position) ++segment;
        return segment;
    }
};

// The lists of a codec in all shards of an index, when only the segments of one shard are searched: each shard then reads
// the same lists as a search of the whole. rows, visible: vectors of each list. scanned: visible vectors without lists.
struct Totals {
    const int64_t* rows;
    const int64_t* visible;
    size_t all_rows, all_visible;
    int64_t scanned;
};

// Where results go: (queries, k) scores and ids, padded with -inf and -1, and, unless null, the keys by which shards are
// merged (pool.hpp); and how much was read, per query.
struct Results {
    float* scores;
    int64_t* ids;
    float* keys;
};
struct Counts {
    int64_t lists = 0, decoded = 0, signs = 0, low_bits = 0;
};

struct ListTable {
    // Each row by `rounds` of signs (rounds, dim) and a Hadamard transform of the first or the last 2^k values, in turn.
    void (*rotate)(float* X, size_t rows, size_t stride, size_t dim, const float* signs, size_t sign_stride, size_t rounds,
                   bool back);
    // The k best of all segments for each query (dim values, as the metric compares them), times `scale`. totals, graph: or null.
    void (*search)(const Codec* codecs, size_t codec_count, const ListSegment* segments, size_t segment_count,
                   const float* Q, size_t queries, float scale, bool l2, const ScanLimits&, size_t k, const Totals* totals,
                   const Graph* graph, Results, Counts*);
    // Scores of all visible rows of one segment, -inf for hidden ones, by position; all bits and the refinement are read.
    void (*scores)(const Codec* codecs, const ListSegment&, const float* q, float scale, bool l2, size_t begin, size_t end,
                   float* out);
};

extern const ListTable lists_baseline;
#ifdef LOGT_X86
extern const ListTable lists_avx2;
extern const ListTable lists_avx512;
extern const ListTable lists_avx512vnni;
extern const ListTable lists_amx;
#endif
#ifdef LOGT_ARM
extern const ListTable lists_dotprod;
#endif

}  // namespace logt
