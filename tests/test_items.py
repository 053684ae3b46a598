"""Several vectors per item: searches for items against brute force, changes, storage, repair, what is refused."""

import copy
import json

import numpy as np
import pytest
from exact_index import built

import logt
from logt.engine.items import Items
from logt.storage.repair import examine, repair

N, DIM = 400, 16
METHODS = {"sketched": logt.methods.sketched(), "rnd": logt.methods.rnd(n=10, m=2, L=8)}
ITEMS = {
    "even": np.arange(N) // 5,
    "one large": np.where(np.arange(N) < 350, 7, np.arange(N)),
    "strings": [f"video {row % 23}" for row in range(N)],
}


def made(X, items, ids=None, method=None, **settings):
    index = logt.Index(X.shape[1], method=method, **settings)
    index.add(X, ids, items=items)
    return index


def brute_force(index, Q, k, item_of, **settings):
    """The first vector of each item in a ranking of all vectors."""
    scores, ids = index.search(Q, len(index), effort=1, **settings)
    best = []
    for row in range(len(Q)):
        seen = {}
        for score, name in zip(scores[row].tolist(), ids[row].tolist(), strict=True):
            if np.isfinite(score):
                seen.setdefault(item_of[name], (name, score))
        best.append([(item, *seen[item]) for item in list(seen)[:k]])
    return best


def assert_same(result, expected):
    """The same items and vectors; the paper's methods round scores differently for other numbers of queries."""
    assert result.counts.tolist() == [len(row) for row in expected]
    for row, best in enumerate(expected):
        items, ids, scores = zip(*best, strict=True)
        assert result.items[row, : len(best)].tolist() == list(items)
        assert result.ids[row, : len(best)].tolist() == list(ids)
        np.testing.assert_allclose(result.scores[row, : len(best)], scores, atol=1e-5)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("metric", ["cosine", "l2"])
@pytest.mark.parametrize("kind", ITEMS)
def test_k_items_are_the_k_best_with_their_best_vectors(vectors, method, metric, kind):
    X, items = vectors(N, DIM), ITEMS[kind]
    index = made(X, items, [f"v{row}" for row in range(N)], METHODS[method], metric=metric)
    item_of = dict(zip(index.ids.tolist(), index.items.tolist(), strict=True))
    assert list(item_of.values()) == list(items)
    exact = {"effort": 1} if method == "sketched" else {"p": 1.0}
    for k in (1, 10, 60):
        result = index.search(X[:4], k, by="item", **exact)
        assert isinstance(result, logt.ItemResult)
        assert result.ids.shape == result.items.shape == (4, k)
        assert_same(result, brute_force(index, X[:4], k, item_of))
    assert index.search(X[0], 3, by="item").items.shape == (3,)


def test_filters_removals_and_reranking_hold(vectors):
    X, items = vectors(N, DIM), ITEMS["one large"]
    index = made(X, items)
    index.link(10)
    index.remove(np.arange(350, 390))
    item_of = dict(enumerate(items.tolist()))
    for settings in (
        {},
        {"filter": np.arange(340, 395)},
        {"rerank": lambda q, ids, scores: -scores},
        {"rerank": "diffusion"},
    ):
        found = index.search(X[:3], 8, by="item", effort=1, **settings)
        assert all(len(set(row[:n].tolist())) == n for row, n in zip(found.items, found.counts, strict=True))
        assert all(item_of[i] == j for i, j in zip(found.ids.ravel(), found.items.ravel(), strict=True) if i >= 0)
        if "rerank" not in settings:
            assert_same(found, brute_force(index, X[:3], 8, item_of, **settings))
    assert found.counts.tolist() == [8] * 3
    narrow = index.search(X[:1], 8, by="item", filter=[1, 2, 395])
    assert set(narrow.items[0].tolist()) == {7, 395, -1}
    ignored = index.search(np.full((1, DIM), np.nan), 2, by="item", on_invalid="ignore")
    assert ignored.items.tolist() == [[-1, -1]]


@pytest.mark.parametrize("strings", [False, True])
def test_items_survive_every_change_and_the_disk(tmp_path, vectors, strings):
    X = vectors(N, DIM)
    items = ITEMS["strings"] if strings else ITEMS["even"].tolist()
    names = [f"v{row}" for row in range(N)] if strings else list(range(N))
    index = made(X[:300], items[:300], names[:300])
    index.save(tmp_path / "i")
    expected = dict(zip(names[:300], items[:300], strict=True))

    def check(index):
        assert dict(zip(index.ids.tolist(), index.items.tolist(), strict=True)) == expected
        assert set(index.search(X[:2], 5, by="item").items.ravel().tolist()) <= set(expected.values())

    with logt.open(tmp_path / "i", mode="a") as opened:
        opened.add(X[300:320], names[300:320], items=items[300:320])
        expected |= dict(zip(names[300:320], items[300:320], strict=True))
        opened.remove(names[5:10])
        opened.upsert(X[:2], names[3:5], items=[items[100]] * 2)
        expected = {name: item for name, item in expected.items() if name not in names[5:10]}
        expected |= dict.fromkeys(names[3:5], items[100])
        opened.save()
        assert list((tmp_path / "i").glob("changes-*.log"))  # no new files
        opened.remove(names[10:12])
        opened.save()  # in the log
        del expected[names[10]], expected[names[11]]
        check(opened)
    reader = logt.open(tmp_path / "i")
    check(reader)
    check(copy.deepcopy(reader))
    with logt.open(tmp_path / "i", mode="a") as opened:
        opened.merge_from(made(X[350:], items[350:], names[350:]))
        expected |= dict(zip(names[350:], items[350:], strict=True))
        check(opened)
        opened.compact()
        check(opened)
        opened.compact(relearn=True)
        check(opened)
        opened.save()
    assert reader.refresh()
    check(reader)
    assert reader.report()["bytes by part"]["items"] > 0


def test_what_does_not_fit_is_refused_and_changes_nothing(vectors):
    X = vectors(20, DIM)
    plain, index = built(X), made(X, np.arange(20) // 2)
    for change, message in (
        (lambda: plain.add(X, items=np.arange(20)), "have no items, and so must new ones"),
        (lambda: index.add(X), "have items, and so must new ones"),
        (lambda: index.add(X, items=["a"] * 20), "the items of this index are integers"),
        (lambda: index.add(X, items=[1, 2]), "2 items are given for 20 vectors"),
        (lambda: index.add(X, items=[-1] * 20), "from 0 on, got -1"),
        (lambda: index.upsert(X[:1], [0]), "have items"),
        (lambda: index.merge_from(made(X, np.arange(20))), "is in both"),
        (lambda: plain.merge_from(made(X, np.arange(20), np.arange(20, 40))), "have items, those of the other"),
        (lambda: plain.search(X[0], by="item"), "have no items; pass items to add"),
        (lambda: index.search(X[0], by="photo"), "by must be"),
    ):
        with pytest.raises(logt.InvalidInputError, match=message):
            change()
    assert (len(index), len(plain), plain.items) == (20, 20, None)
    assert index.items.tolist() == (np.arange(20) // 2).tolist()
    assert logt.Index(DIM).search(X[:1], 2, by="item").items.tolist() == [[-1, -1]]
    index.remove(index.ids)
    index.add(X)  # an empty index may begin again without items
    assert index.items is None


@pytest.mark.parametrize(
    "change",
    [
        {"ids": np.array([1, 0])},
        {"items": np.array([0])},
        {"items": np.array([0, -1])},
        {"items": np.array([0, 2])},
        {"numbers": np.array([0, 5])},
        {"text": np.frombuffer(b"aa", np.uint8)},
    ],
    ids=str,
)
def test_stored_items_that_do_not_fit_together_are_refused(change):
    arrays = Items().add(np.arange(2), ["a", "b"]).arrays
    assert Items.from_arrays(arrays).to_user_items(np.array([1, -1])).tolist() == ["b", None]
    with pytest.raises(ValueError, match=r"fit|increase|below|length|rows"):
        Items.from_arrays({**arrays, **change})


@pytest.mark.parametrize("added", [0, 2])
def test_damaged_items_are_noticed_and_repair_keeps_the_vectors(tmp_path, vectors, added):
    made(vectors(30, DIM), [f"{row}" for row in range(30)]).save(tmp_path / "i")
    with logt.open(tmp_path / "i", mode="a") as index:
        index.add(vectors(added, DIM, seed=1), items=["in the log"] * added)
        index.save()
    (file,) = (tmp_path / "i").glob("items-*")
    assert json.loads((tmp_path / "i" / "manifest.json").read_text())["manifest"]["items"] == file.name
    assert examine(tmp_path / "i").losses == ()
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    with pytest.raises(logt.CorruptIndexError):
        logt.open(tmp_path / "i")
    found = repair(tmp_path / "i", logt.open)
    assert [loss.what for loss in found.losses] == ["the items of all vectors"]
    assert (len(logt.open(tmp_path / "i")), logt.open(tmp_path / "i").items) == (30 + added, None)
