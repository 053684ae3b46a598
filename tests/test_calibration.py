"""Recall as a search parameter: indexes measure their own accuracy by effort."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

import logt
from logt import InvalidInputError
from logt._internal.threads import SERIAL
from logt.cli.main import app
from logt.lists.calibration import calibrate, measure_depths, sample_vectors
from logt.lists.inverted_lists import CandidateDepths, Probe, RecallCurve
from logt.methods import lo_gt, sketched


@pytest.fixture(scope="module")
def normal():
    """Vectors without clusters, and queries like them: (X, Q, an index of X)."""
    rng = np.random.default_rng(0)
    X, Q = rng.standard_normal((6000, 48)).astype("f4"), rng.standard_normal((100, 48)).astype("f4")
    index = logt.Index(48)
    index.add(X)
    return X, Q, index


def shared(index, Q, k=10, **settings):
    """Return the fraction of the results of a full read that a search finds."""
    full, found = index.search(Q, k, effort=1).ids, index.search(Q, k, **settings).ids
    return np.mean([len(set(a) & set(b)) / k for a, b in zip(found.tolist(), full.tolist(), strict=True)])


def test_the_default_finds_most_of_a_full_read_where_there_are_no_clusters(normal):
    _, Q, index = normal
    assert shared(index, Q) > 0.9
    assert shared(index, Q, effort=0) < 0.8  # a constant would not do


@pytest.mark.parametrize("k", [1, 10, 30, 100, 300, 1000])
def test_a_recall_is_about_reached_for_any_k(normal, k):
    _, Q, index = normal
    found = [shared(index, Q, k, recall=recall) for recall in (0.8, 0.9, 0.99)]
    assert all(reached > recall - 0.08 for reached, recall in zip(found, (0.8, 0.9, 0.99), strict=True))
    assert found == sorted(found)


def test_every_trained_codec_has_a_curve_that_is_stored(normal, tmp_path):
    _, Q, index = normal
    curve = index._snapshot.segments[0].codec.curve
    assert (np.diff(curve.recall, axis=1) >= 0).all()
    assert (curve.recall[:, -1] > 0.98).all()
    index.save(tmp_path / "index")
    opened = logt.open(tmp_path / "index")
    assert (opened._snapshot.segments[0].codec.curve.recall == curve.recall).all()
    assert (opened.search(Q, 10).ids == index.search(Q, 10).ids).all()


def test_the_effort_of_a_recall_is_interpolated():
    curve = RecallCurve(np.tile(np.linspace(0.5, 1, 11, dtype=np.float32), (2, 1)))
    assert curve.effort(0.75, 10) == pytest.approx(0.5)
    assert curve.effort(0.2, 10) == 0
    assert curve.effort(1, 1) == pytest.approx(1)
    two = RecallCurve(np.stack([np.ones(11), np.linspace(0, 1, 11)]).astype(np.float32))
    assert two.effort(0.9, 10) == 0
    assert two.effort(0.9, 100) == two.effort(0.9, 10**6) == pytest.approx(0.9)
    assert 0.4 < two.effort(0.9, 32) < 0.5
    three = RecallCurve(np.stack([np.ones(11), np.ones(11), np.linspace(0, 1, 11)]).astype(np.float32))
    assert three.effort(0.9, 100) == 0
    assert three.effort(0.9, 1000) == three.effort(0.9, 10**6) == pytest.approx(0.9)
    assert 0.4 < three.effort(0.9, 320) < 0.5
    assert Probe().effort_for(10, [curve, two]) == pytest.approx(curve.effort(0.95, 10))


def test_curves_of_earlier_versions_have_two_rows():
    stored = np.tile(np.linspace(0.5, 1, 11, dtype=np.float32), (4, 1))
    assert RecallCurve.from_array(stored[:2]).effort(0.75, 1000) == pytest.approx(0.5)
    assert len(RecallCurve.from_array(stored[:3]).recall) == 3
    for wrong in (stored[:1], stored, stored[:2, :10], stored[:2] + 1):
        with pytest.raises(ValueError, match="curve"):
            RecallCurve.from_array(wrong)


def topics(count):
    """Return sparse vectors, each of two of 100 topics: for many results, many lists are needed."""
    rng = np.random.default_rng(7)
    topic = (rng.random((100, 300)) < 0.04) * rng.exponential(1, (100, 300))
    parts = (topic[rng.integers(0, 100, count)] * rng.exponential(scale, (count, 300)) for scale in (1, 0.5))
    return np.add(*parts).astype(np.float32)


def test_a_recall_of_many_results_is_reached():
    X, Q = np.split(topics(8100), [8000])
    index = logt.Index(300)
    index.add(X)
    assert shared(index, Q, 1000, recall=0.95) > 0.92  # 0.70 with the effort for 100 results
    assert shared(index, Q, 300, recall=0.95) > 0.9
    assert shared(index, Q, 10, recall=0.95) > 0.92


def directions(count, dim=300):
    """Return vectors whose variance falls from direction to direction."""
    rng = np.random.default_rng(8)
    turned = np.linalg.qr(rng.standard_normal((dim, dim)))[0]
    return ((rng.standard_normal((count, dim)) * np.arange(1, dim + 1.0) ** -0.7) @ turned + 0.1).astype(np.float32)


def test_the_best_result_alone_is_found_as_often_with_a_graph():
    X, Q = np.split(directions(6200), [6000])
    index = logt.Index(300)
    index.add(X)
    index.link()
    assert shared(index, Q, 10) > 0.92
    assert shared(index, Q, 1) > 0.92  # 0.83 where only the best candidate's neighbors are compared


def exact_recall(index, X, Q, **settings):
    """Return the fraction of the exact ten nearest neighbors that a search finds."""
    X, Q = (V / np.linalg.norm(V, axis=1, keepdims=True) for V in (X, Q))
    exact, found = np.argsort(-(Q @ X.T), axis=1)[:, :10], index.search(Q, 10, **settings).ids
    return np.mean([len(set(a) & set(b)) / 10 for a, b in zip(found.tolist(), exact.tolist(), strict=True)])


def test_where_hundreds_are_about_equally_near_more_candidates_are_compared(tmp_path):
    """Two bits cannot tell such vectors apart: the refinement must be read of more than a few."""
    rng = np.random.default_rng(2)
    centres = rng.standard_normal((12, 320))
    X, Q = (centres[rng.integers(0, 12, n)] + 0.56 * rng.standard_normal((n, 320)) for n in (6000, 100))
    index = logt.Index(320)
    index.add(X)
    ranks = index._snapshot.segments[0].codec.depths
    assert 60 < ranks.few < ranks.many
    assert exact_recall(index, X, Q) > 0.9
    measured = exact_recall(index, X, Q, effort=0.3)
    index.save(tmp_path / "index")
    assert logt.open(tmp_path / "index")._snapshot.segments[0].codec.depths == pytest.approx(ranks)
    old = replace(index._snapshot.segments[0].codec, depths=CandidateDepths())
    index._snapshot = replace(
        index._snapshot, segments=tuple(replace(s, codec=old) for s in index._snapshot.segments)
    )
    assert exact_recall(index, X, Q, effort=0.3) < measured - 0.05


def test_candidates_follow_the_ranks():
    usual = CandidateDepths()
    assert [usual.candidates(10, effort) for effort in (0, 1 / 3, 0.5)] == [20, 30, 35]
    assert usual.candidates(1, 0.5) == usual.candidates(10, 0.5)
    assert usual.candidates(10, 1) == usual.candidates(101, 1)
    assert usual.candidates(1000, 0.3) == 1500
    assert CandidateDepths(120, 300).candidates(10, 1 / 3) == 120
    assert CandidateDepths.total([CandidateDepths(40, 100), usual]) == CandidateDepths(70, 250)
    for ranks in (usual, CandidateDepths(400, 450), CandidateDepths(1, 1)):
        for effort in (0, 0.3, 0.9, 1):
            counts = [ranks.candidates(k, effort) for k in (1, 10, 11, 50, 100, 101, 300, 5000)]
            assert counts == sorted(counts)
        assert all(ranks.candidates(k, 0.99) <= ranks.candidates(k, 1) for k in (1, 50, 100, 1000))
    for wrong in ([0, 1], [1], [1, 1e9]):
        with pytest.raises(ValueError, match="depths"):
            CandidateDepths.from_array(np.array(wrong, np.float32))


def dense_vectors(count, centres=25, dim=256, noise=0.5):
    """Return (vectors in few clusters, queries): hundreds of vectors are about equally near."""
    rng = np.random.default_rng(6)
    middle = rng.standard_normal((centres, dim))
    X = middle[rng.integers(0, centres, count + 100)] + noise * rng.standard_normal((count + 100, dim))
    return np.split(X.astype(np.float32), [count])


def dense_segments(count, centres, size):
    index = logt.Index(320, segment_size=size)
    index.add(dense_vectors(count, centres, 320, 0.56)[0])
    return index._snapshot.segments


def test_ranks_of_a_part_are_those_of_all():
    segments = dense_segments(4000, 6, 1000)
    Q, own = sample_vectors(segments, 128, np.random.default_rng(3))
    whole = measure_depths(segments, Q, own, SERIAL)
    part = measure_depths(segments[:1], Q, own, SERIAL, 1 / len(segments))
    assert len(segments) == 4
    assert 0.5 < part.few / whole.few < 2


def test_the_curve_of_a_part_is_that_of_all():
    segments = dense_segments(24_000, 12, 2000)
    whole = calibrate(segments, None, np.random.default_rng(0), SERIAL)[0].codec
    part = calibrate(segments[::4], None, np.random.default_rng(0), SERIAL, 1 / 4)[0].codec
    assert whole.curve.recall[0, 0] < 0.5
    np.testing.assert_allclose(part.curve.recall, whole.curve.recall, atol=0.12)


@pytest.mark.parametrize("batch", [1000, 12_000])
def test_an_index_that_grew_measures_itself_again(tmp_path, batch):
    X, Q = dense_vectors(18_000)
    index = logt.Index(256)
    index.add(X[:6000])
    index.save(tmp_path / "index")
    index = logt.open(tmp_path / "index", mode="a")
    first = index._snapshot.segments[0].codec
    assert first.measured == 6000
    for start in range(6000, 18_000, batch):
        index.add(X[start : start + batch])
        index.save()
    codecs = {id(segment.codec): segment.codec for segment in index._snapshot.segments}
    (codec,) = codecs.values()
    assert codec.units == first.units
    assert codec.measured >= 10_000
    assert shared(index, Q) > 0.92
    opened = logt.open(tmp_path / "index")._snapshot.segments[0].codec
    assert opened.measured == codec.measured
    assert opened.depths == codec.depths
    np.testing.assert_array_equal(opened.curve.recall, codec.curve.recall)


def test_compact_measures_an_index_that_grew(monkeypatch):
    X, Q = dense_vectors(9000)
    index = logt.Index(256)
    index.add(X[:5000])
    monkeypatch.setattr("logt.lists.method.may_pause", lambda *_: False)
    index.add(X[5000:])
    assert {s.codec.measured for s in index._snapshot.segments} == {5000}
    index.compact()
    assert {s.codec.measured for s in index._snapshot.segments} == {9000}
    index.tune(Q)
    index.add(X)
    index.compact()
    assert {s.codec.measured for s in index._snapshot.segments} == {0}  # what was tuned with queries stays


def test_small_collections_have_ranks_and_a_single_vector_the_usual_ones():
    rng = np.random.default_rng(4)
    small = logt.Index(320)
    small.add(1 + 0.3 * rng.standard_normal((800, 320)))
    (segment,) = small._snapshot.segments
    assert segment.flat
    assert segment.codec.depths.few > 40
    index = logt.Index(64)
    index.add(rng.standard_normal((2000, 64)))
    index.remove(np.arange(1999))
    index.tune()
    assert index._snapshot.segments[0].codec.depths == CandidateDepths()


def test_tuning_measures_with_the_ranks_that_it_finds():
    rng = np.random.default_rng(5)
    centres = rng.standard_normal((6, 320))
    index = logt.Index(320)
    index.add(centres[rng.integers(0, 6, 3000)] + 0.56 * rng.standard_normal((3000, 320)))
    index.link(12)
    few = replace(index._snapshot.segments[0].codec, depths=CandidateDepths(1, 1))
    index._snapshot = replace(
        index._snapshot, segments=tuple(replace(s, codec=few) for s in index._snapshot.segments)
    )
    found = []
    for _ in range(2):  # the second time, the ranks are those of the first
        points = index.tune()
        found.append(([point.recall for point in points], index._snapshot.graph.recall.tolist()))
    assert found[0] == found[1]


@pytest.mark.parametrize(
    "wrong", [{"recall": 0}, {"recall": 1.5}, {"recall": "much"}, {"recall": 0.9, "effort": 0.5}]
)
def test_impossible_recalls_are_refused(normal, wrong):
    _, Q, index = normal
    with pytest.raises(InvalidInputError, match="recall"):
        index.search(Q, 3, **wrong)
    with pytest.raises(InvalidInputError, match="recall is for methods with inverted lists"):
        logt.Index(48, method=lo_gt(n=5, m=2, L=4)).search(Q, 3, recall=0.9)


def test_a_recall_that_only_a_full_read_reaches_is_kept():
    """In vectors without clusters, recall jumps from about 0.97 to 1 at effort 1."""
    rng = np.random.default_rng(0)
    X, Q = rng.standard_normal((6000, 128)), rng.standard_normal((100, 128))
    index = logt.Index(128)
    index.add(X)
    full = index.search(Q, 10, effort=1).ids
    for recall in (0.95, 0.99, 0.999, 1.0):
        found = index.search(Q, 10, recall=recall).ids
        kept = np.mean([len(set(a) & set(b)) / 10 for a, b in zip(found.tolist(), full.tolist(), strict=True)])
        assert kept >= recall - 0.02
    assert (index.search(Q, 10, recall=1.0).ids == full).all()


def test_an_index_that_lost_many_vectors_is_measured_again_when_it_is_compacted():
    index = logt.Index(32)
    index.add(np.random.default_rng(3).standard_normal((6000, 32)))
    index.remove(np.arange(1500))
    index.compact()
    assert {s.codec.measured for s in index._snapshot.segments} == {6000}
    index.remove(np.arange(1500, 3000))
    index.compact()
    assert {s.codec.measured for s in index._snapshot.segments} == {3000}


def test_tuning_by_queries_replaces_the_curve(tmp_path):
    rng = np.random.default_rng(1)
    centres = rng.standard_normal((40, 32))
    X = centres[rng.integers(0, 40, 5000)] + 0.2 * rng.standard_normal((5000, 32))
    index = logt.Index(32)
    index.add(X)
    before = index._snapshot.segments[0].codec.curve
    points = index.tune(rng.standard_normal((50, 32)))  # far from all clusters
    after = index._snapshot.segments[0].codec.curve
    assert (after.recall != before.recall).any()
    assert [point.effort for point in points] == [*RecallCurve.EFFORTS, 1]
    assert points[-1].recall == points[-1].recall_100 == points[-1].recall_1000 == pytest.approx(1)
    assert points[0].scanned < points[-1].scanned == 5000
    index.save(tmp_path / "index")
    reader = logt.open(tmp_path / "index")
    assert len(reader.tune()) == len(points)  # reports, and changes nothing
    assert (reader._snapshot.segments[0].codec.curve.recall == after.recall).all()
    with pytest.raises(InvalidInputError, match="no rows"):
        index.tune(np.empty((0, 32)))
    with pytest.raises(InvalidInputError, match="inverted lists"):
        logt.Index(32, method=lo_gt()).tune()
    assert logt.Index(32).tune() == []


def test_what_was_tuned_with_queries_stays_when_the_index_is_linked():
    """The queries vary alike in all directions, the vectors mostly in three."""
    rng = np.random.default_rng(5)
    spread = np.where(np.arange(96) < 3, 30, 1)
    X, Q = (rng.standard_normal((6000, 96)) * spread).astype("f4"), rng.standard_normal((300, 96)).astype("f4")
    index = logt.Index(96)
    index.add(X[:4400])
    index.link()
    assert shared(index, Q[100:]) < 0.7  # as measured with its own vectors
    index.tune(Q[:100])
    curve = index._snapshot.graph.recall
    assert shared(index, Q[100:]) > 0.9
    index.add(X[4400:])  # more than a quarter is new: all are linked again
    assert (index._snapshot.graph.recall == curve).all()
    assert shared(index, Q[100:]) > 0.85
    index.link(20)  # nothing is known of this graph
    assert not index._snapshot.graph.recall.size
    assert shared(index, Q[100:]) > 0.85
    assert (index.search(Q, 10).ids == index.search(Q, 10, beam=0).ids).all()
    assert (index.search(Q, 10, effort=0.1).ids != index.search(Q, 10, effort=0.1, beam=0).ids).any()
    index.tune()
    assert index._snapshot.graph.recall.size


def test_tuning_by_queries_measures_all_codecs_together():
    """The queries have their nearest vectors in clusters; to find those without clusters would take more effort."""
    rng = np.random.default_rng(0)
    centers = rng.standard_normal((60, 96)) * (np.arange(96) < 48)
    clusters = (centers[rng.integers(0, 60, 6000)] + 0.3 * rng.standard_normal((6000, 96))).astype("f4")
    others = (rng.standard_normal((6000, 96)) * (np.arange(96) >= 48)).astype("f4")
    index = logt.Index(96)
    index.add(clusters[:5900])
    index.add(others)
    codecs = {id(s.codec): s.codec for s in index._snapshot.segments}
    assert len(codecs) == 2
    before = [codec.curve.effort(0.9, 10) for codec in codecs.values()]
    index.tune(clusters[5900:])
    curves = [s.codec.curve for s in index._snapshot.segments]
    assert all((curve.recall == curves[0].recall).all() for curve in curves)
    assert curves[0].effort(0.9, 10) < 0.5 * max(before)
    assert shared(index, clusters[5900:], recall=0.9) > 0.85
    index.tune(others[:100])
    index.remove(np.arange(6400, 11900))  # the others have no lists any more
    index.compact()
    index.tune(clusters[5900:])
    assert any(s.flat for s in index._snapshot.segments)
    assert max(s.codec.curve.effort(0.9, 10) for s in index._snapshot.segments) < 0.5 * max(before)


def test_the_method_sets_the_default(normal):
    X, Q, _ = normal
    index = logt.Index(48, method=sketched(recall=0.7))
    index.add(X)
    assert (index.search(Q, 10).ids == index.search(Q, 10, recall=0.7).ids).all()
    assert shared(index, Q, 100) <= shared(index, Q, 100, recall=0.7)  # the default counts the best 10 only
    assert shared(index, Q) < shared(index, Q, recall=0.99)


def test_the_commands(normal, tmp_path):
    X, Q, _ = normal
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "q.npy", Q)

    def run(*words, code=0):
        done = CliRunner().invoke(app, [str(word) for word in words])
        assert done.exit_code == code, done.output
        return done

    run("build", tmp_path / "x.npy", tmp_path / "index", "--recall", 0.9)
    tuned = json.loads(run("tune", tmp_path / "index", tmp_path / "q.npy", "--json", "--recall", 0.9).stdout)
    assert len(tuned["points"]) == len(RecallCurve.EFFORTS) + 1
    assert 0 <= tuned["recommended"] <= 1
    shown = run("tune", tmp_path / "index", "--plot", tmp_path / "curve.svg").stdout
    assert "recall@10" in shown
    assert "@1000" in shown
    assert (tmp_path / "curve.svg").read_text().startswith("<?xml")
    early = CliRunner().invoke(app, ["tune", str(tmp_path / "index"), "--plot", str(tmp_path / "curve.txt")])
    assert "--plot writes .png or .svg files" in str(early.exception)
    assert not early.output
    run("search", tmp_path / "index", tmp_path / "q.npy", "--recall", 0.9)
