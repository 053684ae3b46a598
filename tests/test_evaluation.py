from __future__ import annotations

import math

import numpy as np
import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st

from logt.evaluation import average_precision, mean_average_precision, recall_at


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 30), st.integers(0, 10), st.integers(0, 120))
def test_average_precision_is_that_of_the_benchmark(seed, positives, junk, depth):
    order = np.random.default_rng(seed).permutation(100)
    wanted, ignored = order[:positives], order[positives : positives + junk]
    ranking = np.random.default_rng(seed + 1).permutation(100)[:depth]
    mine = average_precision(ranking, wanted, ignored)
    assert mine == pytest.approx(reference.average_precision(ranking, set(wanted), set(ignored)), abs=1e-12)


def test_a_perfect_ranking_has_one_and_an_empty_one_has_nothing():
    assert average_precision([3, 1, 2], [1, 2, 3]) == 1
    assert average_precision([], [1, 2]) == 0
    assert average_precision([-1, -1], [1, 2]) == 0
    assert math.isnan(average_precision([1, 2], []))


def test_queries_without_positives_are_left_out_of_the_mean():
    assert mean_average_precision([[1], [2]], [[1], []]) == 100
    assert math.isnan(mean_average_precision([[1]], [[]]))


def test_recall_counts_what_is_found_of_the_truth():
    assert recall_at(2, np.array([[1, 2, 3]]), np.array([[2, 9, 1]])) == 0.5
