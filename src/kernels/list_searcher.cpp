// The Python bindings of the search of the default index (lists.hpp).
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <numeric>
#include <optional>
#include <vector>

#include "binding.hpp"
#include "graph_nodes.hpp"
#include "rows.hpp"
#include "segment_arrays.hpp"

namespace {

template <typename T>
using Values = nb::ndarray<T, nb::c_contig, nb::device::cpu>;  // of any shape

// The columns start..start+size-1 of the rows of X, in place; signs: (rounds, dim)
void rotate(Out<float, 2> X, In<float, 2> signs, size_t start, size_t size, bool back) {
    const size_t dim = X.shape(1);
    current.lists->rotate(X.data() + start, X.shape(0), dim, size, signs.data() + start, dim, signs.shape(0), back);
}

// The segments that one search reads. Holds their arrays, so that a call passes the queries only.
class ListSearcher {
  public:
    // bands: (bands, 5) of start, size, bits, deviation, deviation of the book. Returns the number of the codec.
    size_t add_codec(In<float, 1> mean, In<int32_t, 1> order, In<float, 2> signs, In<double, 2> bands, In<uint8_t, 2> book,
                     In<float, 1> book_scale, In<float, 1> list_weight, In<float, 1> list_bias, In<int64_t, 1> group_starts,
                     size_t compared, In<float, 2> margins, float near, size_t sign_bytes, size_t low_bytes) {
        if (margins.shape(0) && (margins.shape(0) != 2 || margins.shape(1) != logt::MARGINS))
            throw nb::value_error("margins have another shape");
        std::vector<logt::Band>& mine = bands_.emplace_back();
        size_t sign_count = 0, low_count = 0;
        for (size_t b = 0; b < bands.shape(0); ++b) {
            const double* values = bands.data() + 5 * b;
            const logt::Band band = {static_cast<size_t>(values[0]), static_cast<size_t>(values[1]),
                                     static_cast<size_t>(values[2]), static_cast<float>(values[3]),
                                     static_cast<float>(values[4])};
            mine.push_back(band);
            sign_count += band.bits ? band.size : 0;
            low_count += band.bits ? band.size * (band.bits - 1) : 0;
        }
        const size_t groups = group_starts.shape(0) - 1;
        codecs_.push_back({mean.shape(0), book.shape(0) - groups, groups, mine.size(), mean.data(), order.data(), signs.data(),
                           signs.shape(0), nullptr, book.data(), book.shape(1), book_scale.data(), list_weight.data(),
                           list_bias.data(), group_starts.data(), compared, margins.shape(0) ? margins.data() : nullptr, near,
                           sign_count, low_count, sign_bytes, low_bytes});
        for (size_t m = 0; m < codecs_.size(); ++m) codecs_[m].band = bands_[m].data();
        keep(mean, order, signs, book, book_scale, list_weight, list_bias, group_starts, margins);
        return codecs_.size() - 1;
    }

    // visible: by row, or empty: all are. count: visible rows. residual: the row of the residual of each position, or empty: they are
    // in the same order.
    void add_segment(size_t codec, const SegmentArrays& arrays, In<bool, 1> visible, size_t count, In<uint32_t, 1> residual) {
        logt::ListSegment s = arrays.segment();
        s.codec = codec;
        s.visible = visible.shape(0) ? reinterpret_cast<const uint8_t*>(visible.data()) : nullptr;
        s.count = count;
        s.residual = residual.shape(0) ? residual.data() : nullptr;
        keep(visible, residual);
        segments_.push_back(s);
        arrays_.push_back(arrays);
    }

    // The next codec's vectors in all shards, by list and in total (lists.hpp); once for each codec, or never.
    void add_totals(In<int64_t, 1> rows, In<int64_t, 1> visible, int64_t scanned) {
        const auto sum = [](const In<int64_t, 1>& counts) {
            return static_cast<size_t>(std::accumulate(counts.data(), counts.data() + counts.shape(0), int64_t{0}));
        };
        totals_.push_back({rows.data(), visible.data(), sum(rows), sum(visible), scanned});
        keep(rows, visible);
    }

    // The neighbor graph (lists.hpp), once all segments are added. removed: by node, or empty: none is. parts: by segment. Returns
    // the bytes that searches need beside the graph.
    size_t set_graph(In<uint16_t, 2> low, Any high, In<uint8_t, 2> level, In<bool, 1> removed,
                     std::shared_ptr<const GraphNodes> nodes, std::vector<std::shared_ptr<const SegmentNodes>> parts) {
        graph_nodes_ = std::move(nodes);
        graph_parts_ = std::move(parts);
        size_t nbytes = graph_nodes_->nbytes(), unlinked = 0;
        first_.assign(1, 0);
        parts_.clear();
        for (size_t s = 0; s < segments_.size(); ++s) {
            first_.push_back(first_.back() + segments_[s].rows);
            parts_.push_back(graph_parts_.at(s)->view());
            nbytes += graph_parts_[s]->nbytes();
            unlinked += parts_.back().unlinked_count;
        }
        const uint8_t* gone = removed.shape(0) ? reinterpret_cast<const uint8_t*>(removed.data()) : nullptr;
        graph_ = {lists_of(low, high, level), graph_nodes_->data(), gone, parts_.data(), parts_.size(), unlinked,
                  first_.data()};
        keep(low, high, level, removed);
        return nbytes;
    }

    // Q: (queries, dim); scores, ids: (queries, k); keys: as scores, or empty; counts: (queries, 4) lists, codes, signs and
    // low bits that were read
    void search(In<float, 2> Q, bool l2, const logt::ScanLimits& limits, Out<float, 2> scores, Out<int64_t, 2> ids,
                Out<float, 2> keys, Out<int64_t, 2> counts) const {
        std::vector<logt::Counts> read(Q.shape(0));
        run(Q.data(), Q.shape(0), l2, limits, scores.shape(1),
            {scores.data(), ids.data(), keys.shape(0) ? keys.data() : nullptr}, read.data());
        for (size_t q = 0; q < read.size(); ++q) {
            int64_t* out = counts.data() + 4 * q;
            out[0] = read[q].lists, out[1] = read[q].decoded, out[2] = read[q].signs, out[3] = read[q].low_bits;
        }
    }

    // One query as users pass it, and its scores as they see them (lists/search.py). q: dim values; scores, ids: k. Returns the
    // number of lists that were read; nothing, and writes nothing, if q is not valid (rows.hpp).
    std::optional<int64_t> search_one(Values<const float> q, bool cosine, double least, double most, bool l2, const logt::ScanLimits& limits,
                    Values<float> scores, Values<int64_t> ids) const {
        std::vector<float> used(q.data(), q.data() + q.size());
        double norm;
        if (!logt::divide_by_norms(used.data(), 1, used.size(), cosine, least, most, &norm)) return std::nullopt;
        logt::Counts counts;
        run(used.data(), 1, l2, limits, scores.size(), {scores.data(), ids.data(), nullptr}, &counts);
        for (float* score = scores.data(); l2 && score < scores.data() + scores.size(); ++score) {
            const float distance = std::max(0.0f, -*score);
            *score = cosine ? 1 - distance / 2 : distance;
        }
        return counts.lists;
    }

    // The scores of one segment for one query, by position from `begin` on; -inf for hidden rows
    void scores(size_t segment, In<float, 1> q, bool l2, size_t begin, Out<float, 1> out) const {
        current.lists->scores(codecs_.data(), segments_.at(segment), q.data(), l2 ? 2.0f : 1.0f, l2, begin,
                              begin + out.shape(0), out.data());
    }

  private:
    void run(const float* Q, size_t queries, bool l2, const logt::ScanLimits& limits, size_t k, logt::Results results,
             logt::Counts* counts) const {
        const bool sharded = !totals_.empty() && totals_.size() == codecs_.size();
        current.lists->search(codecs_.data(), codecs_.size(), segments_.data(), segments_.size(), Q, queries, l2 ? 2.0f : 1.0f,
                              l2, limits, k, sharded ? totals_.data() : nullptr, graph_.lists.k ? &graph_ : nullptr, results,
                              counts);
    }

    template <typename... Arrays>
    void keep(const Arrays&... arrays) {
        (kept_.push_back(nb::ndarray<nb::ro>(arrays)), ...);
    }

    std::deque<std::vector<logt::Band>> bands_;
    std::vector<logt::Codec> codecs_;
    std::vector<logt::ListSegment> segments_;
    std::vector<SegmentArrays> arrays_;  // keep those of the segments
    std::vector<logt::Totals> totals_;
    std::vector<size_t> first_;
    std::shared_ptr<const GraphNodes> graph_nodes_;
    std::vector<std::shared_ptr<const SegmentNodes>> graph_parts_;
    std::vector<logt::SegmentNodes> parts_;
    logt::Graph graph_ = {};
    std::vector<nb::ndarray<nb::ro>> kept_;
};

}  // namespace

void bind_lists(nb::module_& m) {
    m.def("rotate", rotate, "X"_arr, "signs"_arr, "start"_a, "size"_a, "back"_a, Free());
    nb::class_<logt::ScanLimits>(m, "ScanLimits")
        .def(nb::init<double, size_t, size_t, float, float, float, size_t, size_t, bool, double, size_t>(), "lists"_a, "nprobe"_a,
             "least"_a, "code_reach"_a, "sign_reach"_a, "walk_reach"_a, "candidates"_a, "beam"_a, "everything"_a,
             "further"_a = 0.0, "results"_a = 0);
    nb::class_<SegmentArrays>(m, "SegmentArrays")
        .def(nb::init<In<int64_t, 1>, Any, In<int8_t, 2>, In<float, 1>, In<float, 1>, In<float, 1>, In<uint8_t, 2>,
                      In<uint8_t, 2>, In<int8_t, 2>, In<float, 1>, In<uint32_t, 1>, In<int64_t, 1>>(),
             nb::kw_only(), "starts"_arr, "unit"_arr, "weight"_arr, "scale"_arr, "factor"_arr, "bias"_arr, "sign_bits"_arr,
             "low_bits"_arr, "refinement"_arr, "refinement_scale"_arr, "row"_arr, "ids"_arr);
    nb::class_<SegmentNodes>(m, "SegmentNodes")
        .def(nb::init<const SegmentArrays&, In<uint32_t, 1>, In<uint32_t, 1>>(), "arrays"_a, "node"_arr, "unlinked"_arr);
    nb::class_<GraphNodes>(m, "GraphNodes")
        .def(nb::init<size_t>(), "count"_a)
        .def("copy", [](const GraphNodes& nodes) { return GraphNodes(nodes); })
        .def("place", &GraphNodes::place, "arrays"_a, "part"_a, "first"_a)
        .def("clear", &GraphNodes::clear, "part"_a);
    nb::class_<ListSearcher>(m, "ListSearcher")
        .def(nb::init<>())
        .def("add_codec", &ListSearcher::add_codec, "mean"_arr, "order"_arr, "signs"_arr, "bands"_arr, "book"_arr,
             "book_scale"_arr, "list_weight"_arr, "list_bias"_arr, "group_starts"_arr, "compared"_a, "margins"_arr, "near"_a,
             "sign_bytes"_a, "low_bytes"_a)
        .def("add_segment", &ListSearcher::add_segment, "codec"_a, "arrays"_a, "visible"_arr, "count"_a, "residual"_arr)
        .def("add_totals", &ListSearcher::add_totals, "rows"_arr, "visible"_arr, "scanned"_a)
        .def("set_graph", &ListSearcher::set_graph, "low"_arr, "high"_arr, "level"_arr, "removed"_arr,
             "nodes"_a, "parts"_a)
        .def("search", &ListSearcher::search, "Q"_arr, "l2"_a, "limits"_a, "scores"_arr, "ids"_arr, "keys"_arr,
             "counts"_arr, Free())
        .def("search_one", &ListSearcher::search_one, "q"_arr, "cosine"_a, "least"_a, "most"_a, "l2"_a, "limits"_a, "scores"_arr,
             "ids"_arr, Free())
        .def("scores", &ListSearcher::scores, "segment"_a, "q"_arr, "l2"_a, "begin"_a, "out"_arr, Free());
}
