"""The kernels that compute a neighbor graph agree with naive implementations."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from logt import _kernels
from logt.graph.build import EXHAUSTIVE, _lists_to_compare

NONE, NEW = np.uint32(0xFFFFFFFF), np.uint32(0x80000000)


def byte_rows(rng, count, dim):
    codes = rng.integers(-127, 128, (count, dim)).astype(np.int8)
    return codes, rng.uniform(0.5, 1.5, count).astype(np.float32) / np.float32(127 * np.sqrt(dim))


def padded(rows, width):
    return np.array([list(row) + [NONE] * (width - len(row)) for row in rows], np.uint32).reshape(len(rows), width)


@pytest.mark.parametrize("shape", [(1, 1), (20, 3), (7, 9), (0, 2), (5, 0)])
def test_group_rows_equals_a_naive_search(shape):
    rng = np.random.default_rng(0)
    lists = np.array([rng.choice(9, shape[1], replace=False) for _ in range(shape[0])], np.uint32).reshape(shape)
    starts, rows = np.empty(10, np.int64), np.empty(lists.size, np.uint32)
    _kernels.group_rows(lists, starts, rows)
    found = [rows[starts[j] : starts[j + 1]].tolist() for j in range(9)]
    assert found == [[r for r in range(shape[0]) if j in lists[r]] for j in range(9)]


@pytest.mark.parametrize("dim", [1, 64, 150])
@pytest.mark.parametrize("k", [1, 5, 60])
@pytest.mark.parametrize("few", [False, True], ids=["values", "few values"])
def test_compare_lists_equals_a_naive_sort(isa, rng, dim, k, few):
    """Rows 30 to 109 probe some of the lists; both ends of a pair keep it, once, and no row keeps itself."""
    sizes = [0, 20, 3, 300, 1, 26]
    lists = np.concatenate([[0], np.cumsum(sizes)])
    N = int(lists[-1])
    codes, scale = byte_rows(rng, N, dim)
    if few:
        codes, scale = np.sign(codes), np.ones(N, np.float32)
    P = codes.astype(np.int32) @ codes.T.astype(np.int32)
    probing = [np.sort(rng.choice(80, count, replace=False)) for count in (5, 70, 6, 80, 0, 1)]
    starts = np.concatenate([[0], np.cumsum([len(rows) for rows in probing])])
    rows = np.concatenate(probing).astype(np.uint32)
    found, value = np.full((N, k), NONE, np.uint32), np.full((N, k), -np.inf, np.float32)
    lock = np.zeros(N, np.uint8)
    _kernels.compare_lists(codes, scale, lists, starts, rows, 30, 3, found, value, lock)
    offered = [set() for _ in range(N)]
    for j, mine in enumerate(probing):
        for row in (30 + mine).tolist():
            for other in set(range(lists[j], lists[j + 1])) - {row}:
                offered[row].add(other)
                offered[other].add(row)
    for row, others in enumerate(offered):
        pairs = [(-np.float32(P[row, other]) * scale[other], abs(row - other), other) for other in others]
        best = sorted(pairs)[:k]  # equal values: nearby rows first
        assert found[row].tolist() == [other for _, _, other in best] + [NONE] * (k - len(best))
        assert value[row, : len(best)].tolist() == [-negative for negative, _, _ in best]
    assert not lock.any()


def test_compare_lists_does_not_depend_on_the_order_of_threads(rng):
    N, k = 1000, 8
    codes, scale = rng.integers(-2, 3, (N, 4)).astype(np.int8), np.ones(N, np.float32)  # many products are equal
    lists = np.array([0, 400, N])

    def run(parts, threads):
        found, value = np.full((N, k), NONE, np.uint32), np.full((N, k), -np.inf, np.float32)
        lock = np.zeros(N, np.uint8)

        def compare(part):
            rows = np.tile(np.arange(len(part), dtype=np.uint32), 2)  # each probes both lists
            starts = np.array([0, len(part), 2 * len(part)])
            begin = int(part[0]) % 2
            _kernels.compare_lists(codes, scale, lists, starts, rows, int(part[0]), begin, found, value, lock)

        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(compare, parts))
        return found

    parts = np.array_split(np.arange(N), 50)
    expected = run(parts, 1)
    for _ in range(20):
        np.testing.assert_array_equal(run([parts[i] for i in rng.permutation(50)], 4), expected)


def test_adjacent_rows_are_first_neighbors_and_those_that_have_a_row_among_theirs(rng):
    N, k, forward, width = 60, 7, 4, 6
    found = padded([rng.permutation(np.delete(np.arange(N), i))[: rng.integers(0, k + 1)] for i in range(N)], k)
    new = (rng.random((N, k)) < 0.5) & (found != NONE)
    expected = []
    for i in range(N):
        edges = [(int(j), new[i, r]) for r, j in enumerate(found[i, :forward]) if j != NONE]
        back = sorted((r, int(j)) for j in range(N) for r in range(forward) if found[j, r] == i)
        edges += [(j, new[j, r]) for r, j in back if j not in dict(edges)]
        expected.append([j | int(NEW) if marked else j for j, marked in edges[:width]])
    marked = np.where(new, found | NEW, found)
    adjacent = np.empty((N, width), np.uint32)
    _kernels.adjacent_rows(marked, forward, adjacent)
    np.testing.assert_array_equal(adjacent, padded(expected, width))
    np.testing.assert_array_equal(marked, found)


@pytest.mark.parametrize("dim", [1, 17, 96])
def test_join_finds_the_best_of_what_new_edges_lead_to(isa, rng, dim):
    N, k, width = 80, 6, 5
    codes, scale = byte_rows(rng, N, dim)
    P = (codes.astype(np.int32) @ codes.T.astype(np.int32)).astype(np.float32) * scale
    adjacent = padded([rng.choice(N, rng.integers(0, width + 1), replace=False) for _ in range(N)], width)
    adjacent = np.where((adjacent != NONE) & (rng.random(adjacent.shape) < 0.4), adjacent | NEW, adjacent)
    found = padded(
        [rng.choice(np.delete(np.arange(N), i), rng.integers(0, k + 1), replace=False) for i in range(N)], k
    )
    for i in range(N):  # nearest first
        known = found[i][found[i] != NONE]
        found[i, : len(known)] = sorted(known, key=lambda j: -P[i, j])
    first, count = 10, 60
    given = found[first : first + count].copy()
    changes = _kernels.join_rows(codes, scale, adjacent, first, given)
    new = 0
    for row in range(first, first + count):
        known = set(found[row][found[row] != NONE].tolist())
        reached = set()
        for a in adjacent[row][adjacent[row] != NONE]:
            reached |= {int(a & ~NEW)} if a & NEW else set()
            mine = adjacent[a & ~NEW]
            reached |= {int(b & ~NEW) for b in mine[mine != NONE] if (a | b) & NEW}
        values = sorted((P[row, j] for j in known | reached - {row}), reverse=True)[:k]
        got = given[row - first][given[row - first] != NONE]
        np.testing.assert_allclose([P[row, j & ~NEW] for j in got], values, rtol=1e-6)
        assert {int(j) for j in got if not j & NEW} <= known
        assert not {int(j & ~NEW) for j in got if j & NEW} & known
        new += int(np.count_nonzero(got & NEW))
    assert changes == new > 0


@pytest.mark.parametrize("count", [100, 5_000, 80_000, 100_000, 200_000, 1_000_000, 10_000_000])
def test_a_vector_is_compared_with_enough_others_and_with_few_of_many(count):
    M = min(count, round(4 * count**0.5))
    lists = _lists_to_compare(M, count)
    compared = lists * count / M
    assert min(count, EXHAUSTIVE) <= compared
    assert lists >= min(M, M**0.45)
    assert compared < 2 * max(6144, M**0.45 * count / M)


def test_similarities_equal_products_of_the_rows(isa, rng):
    codes, scale = byte_rows(rng, 50, 33)
    X = codes * scale[:, None]
    found = padded([rng.choice(50, rng.integers(0, 5), replace=False) for _ in range(20)], 4)
    marked = np.where((found != NONE) & (rng.random(found.shape) < 0.5), found | NEW, found)
    out = np.full(found.shape, 7, np.float32)
    _kernels.similarities(codes, scale, 30, marked, out)
    np.testing.assert_array_equal(marked, found)
    expected = [[np.clip(X[30 + i] @ X[j], -1, 1) if j != NONE else 0 for j in row] for i, row in enumerate(found)]
    np.testing.assert_allclose(out, expected, atol=1e-5)
