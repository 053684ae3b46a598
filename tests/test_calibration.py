"""Recall as a search parameter: indexes measure their own accuracy by effort."""

import copy
import json
from dataclasses import replace
from functools import partial

import exact_index
import numpy as np
import pytest
from exact_index import nearest, overlap

import logt
from logt import InvalidInputError
from logt._internal.recall_curve import RecallCurve
from logt._internal.threads import SERIAL
from logt.lists import calibration
from logt.lists.calibration import calibrate, measure_depths, read_all
from logt.lists.inverted_lists import CandidateDepths, Probe
from logt.lists.sampling import sample_vectors
from logt.lists.search import ListSearcher
from logt.lists.shards import Candidates
from logt.methods import lo_gt, sketched

built = partial(exact_index.built, measure=True)


def codecs(index):
    """Return the codecs of an index, each once."""
    return list({id(segment.codec): segment.codec for segment in index._snapshot.segments}.values())


@pytest.fixture(scope="module")
def normal():
    """Vectors without clusters, and queries like them: (X, Q, an index of X)."""
    rng = np.random.default_rng(0)
    X, Q = rng.standard_normal((6000, 48)).astype("f4"), rng.standard_normal((100, 48)).astype("f4")
    return X, Q, built(X)


def shared(index, Q, k=10, **settings):
    """Return the fraction of the results of a full read that a search finds."""
    return overlap(index.search(Q, k, **settings).ids, index.search(Q, k, effort=1).ids)


def test_the_default_finds_most_of_a_full_read_where_there_are_no_clusters(normal):
    _, Q, index = normal
    assert shared(index, Q) > 0.9
    assert shared(index, Q, effort=0) < 0.8  # a constant would not do


@pytest.mark.parametrize("k", [1, 10, 30, 300, 1000])
def test_a_recall_is_about_reached_for_any_k(normal, k):
    _, Q, index = normal
    found = [shared(index, Q, k, recall=recall) for recall in (0.8, 0.9, 0.99, 1.0)]
    assert all(reached > recall - 0.08 for reached, recall in zip(found, (0.8, 0.9, 0.99, 1.0), strict=True))
    assert (np.diff(found) > -0.01).all()
    assert found[-1] == 1


def test_every_trained_codec_has_a_curve_that_is_stored(normal, tmp_path):
    _, Q, index = normal
    (codec,) = codecs(index)
    assert (np.diff(codec.measured.curve.recall, axis=1) >= 0).all()
    assert (codec.measured.curve.recall[:, -1] > 0.98).all()
    index.save(tmp_path / "index")
    opened = logt.open(tmp_path / "index")
    assert (codecs(opened)[0].measured.curve.recall == codec.measured.curve.recall).all()
    assert codecs(opened)[0].measured.depths == codec.measured.depths
    assert codecs(opened)[0].measured.vectors == codec.measured.vectors == 6000
    assert (opened.search(Q, 10).ids == index.search(Q, 10).ids).all()


def test_a_large_index_is_measured_with_fewer_queries(normal, monkeypatch):
    """Its curve is about the same up to searches that take long, and then a line up to a full read."""
    index, efforts = normal[2], np.array(RecallCurve.EFFORTS)
    monkeypatch.setattr(calibration, "_MANY_VECTORS", 10)
    (codec,), segments = codecs(index), index._snapshot.segments
    known = codec.measured.curve.recall
    for share in (1, 0):
        monkeypatch.setattr(calibration, "_LONG", share)
        curve = calibrate(segments, None, np.random.default_rng(0), SERIAL)[0].codec.measured.curve
        if share:
            np.testing.assert_allclose(curve.recall, known, atol=0.1)
    np.testing.assert_allclose(curve.recall[:, 0], known[:, 0], atol=0.1)
    line = curve.recall[:, :1] * (1 - efforts) + efforts
    np.testing.assert_allclose(curve.recall, np.where(line < 0.998, line, curve.recall), atol=1e-6)
    assert curve.effort(0.97, 10) < 1


def test_the_effort_of_a_recall_is_interpolated():
    efforts = np.array(RecallCurve.EFFORTS, np.float32)
    ones, rising = np.ones_like(efforts), np.where(efforts > 0.98, 1, efforts)
    curve = RecallCurve(np.tile(0.5 + rising / 2, (3, 1)))
    assert curve.effort(0.75, 10) == pytest.approx(0.5)
    assert curve.effort(0.2, 10) == 0
    assert curve.effort(1, 1) == pytest.approx(1)
    many = RecallCurve(np.stack([ones, ones, rising]))
    assert many.effort(0.9, 100) == 0
    assert many.effort(0.9, 1000) == many.effort(0.9, 10**6) == pytest.approx(0.9)
    assert 0.4 < many.effort(0.9, 320) < 0.5
    assert Probe().effort_for(10, [curve, many]) == pytest.approx(curve.effort(0.95, 10))
    for wrong in (curve.recall[:2], curve.recall[:, :10], curve.recall + 1):
        with pytest.raises(ValueError, match="curve"):
            RecallCurve.from_array(wrong)


def test_a_recall_of_many_results_is_reached():
    """Sparse vectors, each of two of 100 topics: for many results, many lists are needed."""
    rng = np.random.default_rng(7)
    topic = (rng.random((100, 100)) < 0.08) * rng.exponential(1, (100, 100))
    parts = (topic[rng.integers(0, 100, 5100)] * rng.exponential(scale, (5100, 100)) for scale in (1, 0.5))
    X, Q = np.split(np.add(*parts).astype(np.float32), [5000])
    index = built(X)
    assert shared(index, Q, 1000, recall=0.95) > 0.92  # much less with the effort for 100 results
    assert shared(index, Q, 1000) < shared(index, Q, 1000, recall=0.95)
    assert shared(index, Q, 300, recall=0.95) > 0.9
    assert shared(index, Q, 10, recall=0.95) > 0.92


def test_the_best_result_alone_is_found_as_often_with_a_graph():
    """The variance of the vectors falls from direction to direction."""
    rng = np.random.default_rng(8)
    turned = np.linalg.qr(rng.standard_normal((300, 300)))[0]
    X = (rng.standard_normal((4200, 300)) * np.arange(1, 301.0) ** -0.7) @ turned + 0.1
    X, Q = np.split(X.astype(np.float32), [4000])
    index = built(X, link=50)
    assert shared(index, Q, 10) > 0.92
    assert shared(index, Q, 1) > 0.92  # less where only the best candidate's neighbors are compared


def dense_vectors(count, centres, dim, noise=0.56):
    """Return (vectors in few clusters, queries): hundreds of vectors are about equally near."""
    rng = np.random.default_rng(6)
    middle = rng.standard_normal((centres, dim))
    X = middle[rng.integers(0, centres, count + 100)] + noise * rng.standard_normal((count + 100, dim))
    return np.split(X.astype(np.float32), [count])


def with_depths(index, depths):
    """Return a copy of an index whose codec has other depths."""
    changed = copy.copy(index)
    codec = codecs(index)[0]
    codec = replace(codec, measured=codec.measured._replace(depths=depths))
    segments = tuple(replace(segment, codec=codec) for segment in index._snapshot.segments)
    changed._snapshot = replace(index._snapshot, segments=segments)
    return changed


def test_a_search_on_a_graph_reads_no_less_than_was_measured_at_its_effort():
    """Queries unlike the collection may need more effort with the graph than without it."""
    efforts, depths = np.array(RecallCurve.EFFORTS, np.float32), CandidateDepths()
    easy, hard = (RecallCurve(np.tile(efforts**power, (3, 1))) for power in (0.05, 0.5))
    limits = Probe(recall=0.8).limits(10, depths=depths, curves=[easy], graph=[hard])
    measured = Probe(hard.effort(0.8, 10)).limits(10, depths=depths, graph=())
    assert limits == measured
    limits = Probe(recall=0.95).limits(100, depths=depths, curves=[hard], graph=[easy])
    assert limits.further == Probe(0.5).limits(100, depths=depths).further  # less than that of the effort without it
    assert hard.effort(0.95, 100) > 0.5 > easy.effort(0.95, 100)
    assert limits.results == 10


def test_where_hundreds_are_about_equally_near_more_candidates_are_compared():
    """Two bits cannot tell such vectors apart: the refinement must be read of more than a few."""
    X, Q = dense_vectors(3000, 6, 320)
    index, exact = built(X), nearest(X, Q)
    (codec,) = codecs(index)
    assert 60 < codec.measured.depths.few < codec.measured.depths.many
    assert overlap(index.search(Q, 10).ids, exact) > 0.9
    usual = with_depths(index, CandidateDepths())
    few, many = (overlap(each.search(Q, 10, effort=0.3).ids, exact) for each in (usual, index))
    assert few < many - 0.05


def test_candidates_follow_the_depths():
    usual = CandidateDepths()
    assert [usual.candidates(10, effort) for effort in (0, 0.23, 0.5)] == [20, 30, 50]
    assert usual.candidates(1, 0.5) == usual.candidates(10, 0.5)
    assert usual.candidates(10, 1) == usual.candidates(101, 1)
    assert usual.candidates(1000, 0.2) == 1500
    assert CandidateDepths(120, 300).candidates(10, 0.23) == 120
    assert CandidateDepths.total([CandidateDepths(40, 100), usual]) == CandidateDepths(70, 250)
    for depths in (usual, CandidateDepths(400, 450), CandidateDepths(1, 1)):
        for effort in (0, 0.3, 0.9, 1):
            counts = [depths.candidates(k, effort) for k in (1, 10, 11, 50, 100, 101, 300, 5000)]
            assert counts == sorted(counts)
        assert all(depths.candidates(k, 0.99) <= depths.candidates(k, 1) for k in (1, 50, 100, 1000))
    for wrong in ([0, 1], [1], [1, 1e9]):
        with pytest.raises(ValueError, match="depths"):
            CandidateDepths.from_array(np.array(wrong, np.float32))


def test_a_part_is_as_accurate_as_all():
    """So that the codec of a large index can be measured with some of its segments."""
    segments = exact_index.built(dense_vectors(9600, 6, 96)[0], segment_size=1200)._snapshot.segments
    assert len(segments) == 8
    whole, part = (
        calibrate(some, None, np.random.default_rng(0), SERIAL, share)[0].codec
        for some, share in ((segments, 1), (segments[::4], 1 / 4))
    )
    assert whole.measured.curve.recall[0, 0] < 0.5
    assert (part.measured.curve.recall > whole.measured.curve.recall - 0.12).all()
    Q, own = sample_vectors(segments, 128, np.random.default_rng(3))
    depths = [
        measure_depths(read_all(ListSearcher(some), Q, own, SERIAL), len(some) / 8).few
        for some in (segments, segments[:2])
    ]
    assert 0.5 < depths[1] / depths[0] < 2


@pytest.mark.parametrize(
    ("found", "work", "best"),
    [
        ({1.0: 0.9, 1.3: 0.98, 1.7: 0.99, 2.2: 1.0}, {1.0: 10, 1.3: 20, 1.7: 30, 2.2: 40}, 1.3),
        ({1.0: 0.98, 1.3: 0.98, 1.7: 0.99, 2.2: 1.0}, {1.0: 10, 1.3: 20, 1.7: 30, 2.2: 40}, 1.0),
        ({1.0: 0.3, 1.3: 0.4, 1.7: 0.5, 2.2: 0.6}, {1.0: 1, 1.3: 1, 1.7: 1, 2.2: 1}, 1.0),  # none finds enough
    ],
)
def test_the_reach_that_finds_most_for_the_least_work_is_kept(monkeypatch, found, work, best):
    """found, work: by reach, at every effort."""
    usual, nearest = Probe(0.05).limits(10, depths=None).code_reach, np.arange(100)

    class Searcher:
        depths = CandidateDepths()

        def __init__(self, segments):
            pass

        def search(self, Q, k, limits, workers):
            ratio = limits.code_reach / max(usual, 6.1 * limits.lists - 0.85)
            reach = min(found, key=lambda known: abs(known - ratio))
            hits = round(10 * len(Q) * found[reach])
            ids = np.where(np.arange(10 * len(Q)) < hits, np.tile(nearest[:10], len(Q)), 99).reshape(-1, 10)
            counts = np.zeros((len(Q), 4), np.int64)
            counts[:, 1] = work[reach]
            return None, np.pad(ids, ((0, 0), (0, 1)), constant_values=98), counts

    monkeypatch.setattr(calibration, "ListSearcher", Searcher)
    X = dense_vectors(600, 6, 16)[0]
    segments = exact_index.built(X)._snapshot.segments
    ids = np.tile(nearest[:10], (50, 1))
    full = Candidates(-ids.astype("f4"), -ids.astype("f4"), ids)
    assert calibration._best_reach(segments, X[:50], np.full(50, -1), full, SERIAL) == best


def test_a_search_reads_more_residuals_with_a_reach():
    X, Q = dense_vectors(6000, 20, 32)
    searcher = ListSearcher(exact_index.built(X)._snapshot.segments)
    limits = [Probe(0.6).limits(10, depths=CandidateDepths(reach=reach))._replace(results=0) for reach in (1, 1.7)]
    # One by one: with AMX, batches read the residuals of whole tiles.
    few, more = (np.mean([searcher.search(q[None], 10, given)[2][0, 2] for q in Q]) for given in limits)
    assert more > 1.2 * few


@pytest.mark.parametrize("batch", [1000, 6000])
def test_an_index_that_grew_measures_itself_again(tmp_path, batch):
    X, Q = dense_vectors(9000, 25, 64)
    index = built(X[:3000])
    index.save(tmp_path / "index")
    index = logt.open(tmp_path / "index", mode="a")
    (first,) = codecs(index)
    assert first.measured.vectors == 3000
    for start in range(3000, 9000, batch):
        index.add(X[start : start + batch])
        index.save()
    (codec,) = codecs(index)
    assert codec.units == first.units
    assert codec.measured.vectors >= 5000
    assert shared(index, Q) > 0.92
    (opened,) = codecs(logt.open(tmp_path / "index"))
    assert (opened.measured.vectors, opened.measured.depths) == (codec.measured.vectors, codec.measured.depths)
    np.testing.assert_array_equal(opened.measured.curve.recall, codec.measured.curve.recall)


def test_compact_measures_an_index_that_grew_or_shrank(monkeypatch):
    X, Q = dense_vectors(3600, 25, 32)
    index = built(X[:2000])
    monkeypatch.setattr("logt.lists.method.may_pause", lambda *_: False)

    def measured_with():
        return {codec.measured.vectors for codec in codecs(index)}

    index.add(X[2000:])
    assert measured_with() == {2000}
    index.compact()
    assert measured_with() == {3600}
    index.remove(np.arange(900))
    index.compact()
    assert measured_with() == {3600}
    index.remove(np.arange(900, 1800))
    index.compact()
    assert measured_with() == {1800}
    index.tune(Q[:20])
    index.add(X)
    index.compact()
    assert measured_with() == {0}  # what was tuned with queries stays


def test_small_collections_have_depths_and_a_single_vector_the_usual_ones():
    rng = np.random.default_rng(4)
    small = built(1 + 0.3 * rng.standard_normal((800, 320)))
    (segment,) = small._snapshot.segments
    assert segment.flat
    assert segment.codec.measured.depths.few > CandidateDepths().few
    small.remove(np.arange(799))
    small.tune()
    assert codecs(small)[0].measured.depths == CandidateDepths()


def test_tuning_measures_with_the_depths_that_it_finds():
    index = exact_index.built(dense_vectors(1500, 3, 160)[0], link=12)
    index = with_depths(index, CandidateDepths(1, 1))
    found = []
    for _ in range(2):  # the second time, the depths are those of the first
        points = index.tune()
        found.append(([point.recall for point in points], index._snapshot.graph.recall.tolist()))
    assert found[0] == found[1]


def test_tuning_by_queries_replaces_the_curve(normal, tmp_path):
    index = copy.copy(normal[2])
    before = codecs(index)[0].measured.curve
    points = index.tune(np.ones((20, 48)) + normal[1][:20] / 9)
    after = codecs(index)[0].measured.curve
    assert (after.recall != before.recall).any()
    assert [point.effort for point in points] == [*RecallCurve.EFFORTS, 1]
    assert points[-1].recall == points[-1].recall_100 == points[-1].recall_1000 == pytest.approx(1)
    assert points[0].scanned < points[-1].scanned == 6000
    index.save(tmp_path / "index")
    reader = logt.open(tmp_path / "index")
    assert len(reader.tune(normal[1][:20])) == len(points)  # reports, and changes nothing
    assert (codecs(reader)[0].measured.curve.recall == after.recall).all()
    for few in (0, 15):
        with pytest.raises(InvalidInputError, match=f"Q has {few} rows"):
            index.tune(normal[1][:few])
    with pytest.raises(InvalidInputError, match="inverted lists"):
        logt.Index(32, method=lo_gt()).tune()
    assert logt.Index(32).tune() == []


def test_what_was_tuned_with_queries_stays_when_the_index_is_linked():
    """The queries vary alike in all directions, the vectors mostly in three."""
    rng = np.random.default_rng(5)
    spread = np.where(np.arange(96) < 3, 30, 1)
    X, Q = (rng.standard_normal((2200, 96)) * spread).astype("f4"), rng.standard_normal((150, 96)).astype("f4")
    index = built(X[:1600], link=50)
    measured = index._snapshot.graph.recall  # with its own vectors
    index.tune(Q[:50])
    curve = index._snapshot.graph.recall
    assert (curve[0] < measured[0]).any()
    assert shared(index, Q[50:]) > 0.9
    index.add(X[1600:])  # more than a quarter is new: all are linked again
    assert (index._snapshot.graph.recall == curve).all()
    assert shared(index, Q[50:]) > 0.85
    index.link(20)  # nothing is known of this graph
    assert not index._snapshot.graph.recall.size
    assert shared(index, Q[50:]) > 0.85
    assert (index.search(Q, 10).ids == index.search(Q, 10, beam=0).ids).all()
    assert (index.search(Q, 10, effort=0.1).ids != index.search(Q, 10, effort=0.1, beam=0).ids).any()
    index.tune()
    assert index._snapshot.graph.recall.size


def test_tuning_by_queries_measures_all_codecs_together():
    """The queries have their nearest vectors in clusters; to find those without clusters would take more effort."""
    rng = np.random.default_rng(0)
    centers = rng.standard_normal((60, 96)) * (np.arange(96) < 48)
    clusters = (centers[rng.integers(0, 60, 1850)] + 0.3 * rng.standard_normal((1850, 96))).astype("f4")
    clusters, Q = np.split(clusters, [1800])
    others = (rng.standard_normal((1800, 96)) * (np.arange(96) >= 48)).astype("f4")
    index = built(clusters)
    index.add(others)
    before = [codec.measured.curve.effort(0.9, 10) for codec in codecs(index)]
    assert len(before) == 2
    index.tune(Q)
    curves = [codec.measured.curve for codec in codecs(index)]
    assert all((curve.recall == curves[0].recall).all() for curve in curves)
    assert curves[0].effort(0.9, 10) < 0.5 * max(before)
    assert shared(index, Q, recall=0.9) > 0.85
    index.tune(others[:50])
    index.remove(np.arange(2300, 3600))  # the others have no lists any more
    index.compact()
    index.tune(Q)
    assert any(s.flat for s in index._snapshot.segments)
    assert max(codec.measured.curve.effort(0.9, 10) for codec in codecs(index)) < 0.5 * max(before)


def test_the_method_sets_the_default(normal):
    _, Q, index = normal
    index = copy.copy(index)
    index._state = replace(index._state, method=sketched(recall=0.7))
    assert (index.search(Q, 10).ids == index.search(Q, 10, recall=0.7).ids).all()
    assert shared(index, Q, 100) <= shared(index, Q, 100, recall=0.7)  # the default counts the best 10 only
    assert shared(index, Q) < shared(index, Q, recall=0.99)


def test_the_commands(normal, tmp_path, run_logt):
    X, Q, _ = normal
    np.save(tmp_path / "x.npy", X[:300])
    np.save(tmp_path / "q.npy", Q[:20])
    run_logt("build", tmp_path / "x.npy", tmp_path / "index", "--recall", 0.9)
    tuned = json.loads(run_logt("tune", tmp_path / "index", tmp_path / "q.npy", "--json", "--recall", 0.9))
    assert len(tuned["points"]) == len(RecallCurve.EFFORTS) + 1
    assert 0 <= tuned["recommended"] <= 1
    shown = run_logt("tune", tmp_path / "index", "--plot", tmp_path / "curve.svg")
    assert "recall@10" in shown
    assert "@1000" in shown
    assert (tmp_path / "curve.svg").read_text().startswith("<?xml")
    wrong = run_logt("tune", tmp_path / "index", "--plot", tmp_path / "curve.txt", ok=False)
    assert "--plot writes .png or .svg files" in wrong
    run_logt("search", tmp_path / "index", tmp_path / "q.npy", "--recall", 0.9)


@pytest.fixture(scope="module")
def clustered():
    """An index of vectors in clusters, and queries: (index, {kind: queries})."""
    rng = np.random.default_rng(11)
    centers = (rng.standard_normal((60, 24)) @ rng.standard_normal((24, 64))).astype("f4")
    X = centers[rng.integers(0, 60, 6100)] + 2 * rng.standard_normal((6100, 64), np.float32)
    X, Q = np.split(X / np.linalg.norm(X, axis=1, keepdims=True), [6000])
    kinds = {
        "like": Q,
        "means": X[rng.integers(0, 6000, (3, 100))].mean(axis=0),
        "mixtures": rng.standard_normal((100, 24), np.float32) @ rng.standard_normal((24, 64), np.float32),
        "random": rng.standard_normal((100, 64), np.float32),
        "opposite": -Q,
    }
    return built(X, link=30), kinds


@pytest.mark.parametrize("beam", [None, 0])
@pytest.mark.parametrize("kind", ["like", "means", "mixtures", "random", "opposite"])
def test_queries_unlike_the_collection_find_what_was_asked_for(clustered, kind, beam):
    index, kinds = clustered
    Q = kinds[kind]
    full = index.search(Q, 10, effort=1).ids
    found = [overlap(a[None], b[None]) for a, b in zip(index.search(Q, 10, beam=beam).ids, full, strict=True)]
    assert np.mean(found) > 0.9  # 0.4 where as much is read for all, with the graph
    assert np.quantile(found, 0.05) >= 0.6


def test_a_query_in_a_batch_reads_what_it_reads_alone(clustered):
    index, kinds = clustered
    Q = np.concatenate([queries[:10] for queries in kinds.values()])
    for beam in (None, 0):
        together = index.search(Q, 10, beam=beam)
        for i, q in enumerate(Q):
            alone = index.search(q, 10, beam=beam)
            assert (alone.ids == together.ids[i]).all()
            assert (alone.scores == together.scores[i]).all()
