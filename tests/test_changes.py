"""Changing an index: remove, upsert, merge, compact, and a machine that does all of it at random."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
from exact_index import EXACT, METRICS, built
from faults import TORTURE
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

import logt
from logt import InvalidInputError
from logt.group_testing.segment import CodedSegment as Segment
from logt.methods import gt, rnd, sketched, starred


@pytest.fixture(params=METRICS)
def index(request, vectors):
    return built(
        vectors(40, 8) * np.linspace(1, 3, 40, dtype=np.float32)[:, None],
        method=EXACT,
        metric=request.param,
        segment_size=15,
    )


def everything(index):
    return set(index.search(np.ones(8), 1000).ids.tolist()) - {-1}


def test_removed_vectors_are_not_found(index):
    assert index.remove([3, 7, 39, 1000]) == 3
    assert index.remove([3]) == 0
    assert index.remove([]) == 0
    assert len(index) == 37
    assert everything(index) == set(range(40)) - {3, 7, 39}
    assert 3 not in index
    assert 4 in index
    assert "4" not in index
    assert set(index.ids.tolist()) == everything(index)


def test_ids_are_not_reused(index, vectors):
    assert index.remove(np.arange(40)) == 40
    assert (index.search(np.ones(8), 3).ids == -1).all()
    assert index.add(vectors(1, 8)).tolist() == [40]
    index.add(vectors(1, 8), ids=[35])
    assert 35 in index


def test_compacting_frees_memory_and_changes_no_result(index, vectors):
    Q = vectors(9, 8, seed=2)
    index.remove(np.arange(0, 40, 3))
    before, size = index.search(Q, 10), index.report()["bytes"]
    index.compact()
    after = index.search(Q, 10)
    assert (before.ids == after.ids).all()
    assert np.allclose(before.scores, after.scores, atol=1e-6)
    assert index.report()["bytes"] < size
    assert index.report()["removed"] == 0


def test_the_memory_of_removed_vectors_is_freed_when_it_is_much(tmp_path, vectors):
    index = built(vectors(4000, 8), [f"v{n}" for n in range(4000)], link=3)
    index.save(tmp_path / "index")
    Q = vectors(5, 8, seed=2)
    with logt.open(tmp_path / "index", mode="a") as opened:
        for start in range(0, 2800, 400):
            opened.remove([f"v{n}" for n in range(start, start + 400)])
            opened.save()
        snapshot = opened._snapshot
        assert (sum(map(len, snapshot.segments)), len(snapshot.strings), len(snapshot.graph)) == (2000, 2000, 1200)
        expected = opened.search(Q, 1200, effort=1)
    found = logt.open(tmp_path / "index").search(Q, 1200, effort=1)
    assert (found.ids == expected.ids).all()
    index.remove([f"v{n}" for n in range(2800)])
    assert np.allclose(index.search(Q, 1200, effort=1).scores, expected.scores, atol=1e-6)


def test_string_ids_that_are_not_used_do_not_pile_up(vectors, monkeypatch):
    monkeypatch.setattr("logt.engine.snapshot._LITTLE_WASTE", 100)
    index = built(vectors(200, 8), [f"v{n}" for n in range(200)])
    for n in range(8):
        index.remove(list(index.ids[:100]))
        index.add(vectors(100, 8, seed=n), ids=[f"round {n}, {m}" for m in range(100)])
    assert len(index._snapshot.strings) < 2 * 200 + 100 + 100
    assert len(index) == 200
    one = vectors(1, 8)
    for _ in range(400):
        index.upsert(one, ["the same"])
    assert len(index._snapshot.strings) < 2 * 201 + 100 + 1


def test_a_refused_upsert_changes_nothing(index, vectors):
    before = index.reconstruct([5, 6])
    with pytest.raises(InvalidInputError, match="row 1"):
        index.upsert(np.vstack([vectors(1, 8, seed=5), np.full((1, 8), np.nan)]), [5, 6])
    assert np.array_equal(index.reconstruct([5, 6]), before)


def test_indexes_that_cannot_be_merged_are_refused(index, vectors):
    for wrong, message in (
        (logt.Index(9, method=EXACT, metric=index.metric), "dim differs: 8 here, 9 there"),
        (logt.Index(8, method=rnd(), metric=index.metric), "method differs"),
        (logt.Index(8, method=EXACT, metric="ip" if index.metric != "ip" else "l2"), "metric differs"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            index.merge_from(wrong)
    same = built(vectors(1, 8), ids=[11], method=EXACT, metric=index.metric)
    with pytest.raises(InvalidInputError, match="id 11 is in both"):
        index.merge_from(same)
    assert len(index) == 40


def test_a_removed_vector_suppresses_nothing(vectors):
    X = vectors(1, 8).repeat(64, axis=0)
    made = logt.Index(8, method=starred(gt(n=4, m=1)))
    made.add(X)
    units = made._snapshot.segments[0].units.assignment[:, 0]
    best = made.search(X[0], 64).ids.tolist()
    mates = np.flatnonzero(units == units[best[0]]).tolist()
    assert len(mates) == 4
    assert set(best[16:]) >= set(mates) - {best[0]}
    made.remove([best[0]])
    again = made.search(X[0], 63).ids.tolist()
    assert len(set(again[:16]) & set(mates)) == 1


def test_a_corrected_ranking_is_a_prefix_of_the_complete_one(vectors):
    """However much is suppressed: the first k of a search are the first k of a search for everything."""
    X, Q = vectors(600, 16), vectors(5, 16, seed=1)
    made = logt.Index(16, method=starred(rnd(n=30, m=4, L=10), depth=20))
    made.add(X)
    whole = made.search(Q, 600).ids
    for k in (1, 10, 100):
        assert (made.search(Q, k).ids == whole[:, :k]).all()


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_an_interrupted_compact_changes_nothing(index, monkeypatch, error):
    index.remove([1, 17, 39])
    before, real, calls = index.search(np.ones(8), 40), Segment.compact, iter(range(100))

    def interrupted(segment):
        if next(calls) == 1:
            raise error
        return real(segment)

    monkeypatch.setattr(Segment, "compact", interrupted)
    with pytest.raises(error):
        index.compact()
    assert (index.search(np.ones(8), 40).ids == before.ids).all()
    assert index.report()["removed"] == 3


class Machine(RuleBasedStateMachine):
    """An index of tiny batches and segments against a dictionary and brute force."""

    method = EXACT

    def __init__(self):
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "index"
        self.index = logt.Index(4, method=self.method, metric="ip", segment_size=3)
        self.truth: dict[int, np.ndarray] = {}
        self.rng = np.random.default_rng(0)

    def teardown(self):
        self.index.close()
        self.folder.cleanup()

    def fresh(self, count):
        return self.rng.standard_normal((count, 4)).astype(np.float32)

    @rule(count=st.integers(0, 4))
    def add(self, count):
        X = self.fresh(count)
        self.truth |= dict(zip(self.index.add(X).tolist(), X, strict=True))

    @rule(ids=st.lists(st.integers(0, 30), unique=True, max_size=3))
    def upsert(self, ids):
        X = self.fresh(len(ids))
        self.index.upsert(X, np.array(ids, int))
        self.truth |= dict(zip(ids, X, strict=True))

    @rule(ids=st.lists(st.integers(0, 30), max_size=4))
    def remove(self, ids):
        assert self.index.remove(ids) == len({i for i in ids if i in self.truth})
        for i in ids:
            self.truth.pop(i, None)

    @rule(first=st.integers(1000, 1100), count=st.integers(1, 3))
    def merge(self, first, count):
        other = logt.Index(4, method=self.method, metric="ip")
        X = self.fresh(count)
        ids = [i for i in range(first, first + count) if i not in self.truth]
        other.add(X[: len(ids)], ids=np.array(ids, int))
        self.index.merge_from(other)
        assert sorted(other.ids.tolist()) == ids  # it is left as it was
        self.truth |= dict(zip(ids, X, strict=False))

    @rule()
    def compact(self):
        self.index.compact()
        assert self.index.report()["removed"] == 0

    @rule()
    def save_and_reopen(self):
        self.index.save(self.path)
        self.index.close()
        self.index = logt.open(self.path, mode="a")

    @precondition(lambda self: self.truth)
    @rule(k=st.integers(1, 8), odd=st.booleans())
    def search(self, k, odd):
        q = self.fresh(1)[0]
        allowed = {i: self.held(i, x) for i, x in self.truth.items() if not odd or i % 2}
        scores, ids = self.index.search(q, k, effort=1, filter=(lambda i: i % 2 == 1) if odd else None)
        real = ids[ids >= 0].tolist()
        assert len(real) == min(k, len(allowed)) == len(set(real))
        for i, score in zip(real, scores.tolist(), strict=False):
            assert score == pytest.approx(float(allowed[i] @ q), abs=0.02 * float(np.linalg.norm(q)) + 1e-3)
        if real:
            best = max(float(x @ q) for x in allowed.values())
            assert float(allowed[real[0]] @ q) >= best - 5e-2 * np.linalg.norm(q)

    def held(self, id, x):
        """The vector that the index represents."""
        return x

    @invariant()
    def same_ids(self):
        assert len(self.index) == len(self.truth)
        assert set(self.index.ids.tolist()) == set(self.truth)


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=4000 if TORTURE else 25, stateful_step_count=25, deadline=None)


class SketchedMachine(Machine):
    """The default method: results are those of its reconstructions, which are near the vectors."""

    method = sketched(bits=4)

    def held(self, id, x):
        got = self.index.reconstruct([id])[0]
        assert np.linalg.norm(got - x) <= 0.5 * np.linalg.norm(x) + 1e-6
        return got


TestSketchedMachine = SketchedMachine.TestCase
TestSketchedMachine.settings = TestMachine.settings
