import math

import numpy as np
import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st

from logt import InvalidInputError
from logt.evaluation import (
    GroundTruth,
    average_precision,
    evaluate,
    mean_average_precision,
    recall_at,
    revisited_setups,
)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(0, 12), st.integers(0, 12), st.integers(0, 20), st.integers(0, 100))
def test_the_revisited_setups_equal_the_reference_implementation(seed, easy, hard, junk, depth):
    rng = np.random.default_rng(seed)
    order = rng.permutation(100)
    kinds = {"easy": order[:easy], "hard": order[easy : easy + hard], "junk": order[easy + hard :][:junk]}
    ranking = rng.permutation(100)[:depth]
    setups = revisited_setups([kinds["easy"]], [kinds["hard"]], [kinds["junk"]])
    for name, relevant, ignored in (
        ("easy", ("easy",), ("junk", "hard")),
        ("medium", ("easy", "hard"), ("junk",)),
        ("hard", ("hard",), ("junk", "easy")),
    ):
        positives, skipped = ({int(i) for kind in some for i in kinds[kind]} for some in (relevant, ignored))
        score = evaluate([ranking], setups[name], ks=(1, 5, 10))
        assert score.queries == (1 if positives else 0)
        if not positives:
            assert math.isnan(score.mean_ap)
            continue
        assert score.depth == depth
        area, precision = reference.revisited_measures(ranking, positives, skipped, (1, 5, 10))
        assert score.mean_ap / 100 == pytest.approx(area, abs=1e-12)
        assert [score.precision[k] / 100 for k in (1, 5, 10)] == pytest.approx(precision, abs=1e-12)
        assert area == pytest.approx(reference.average_precision(ranking, positives, skipped), abs=1e-12)


def test_means_are_over_queries_with_positives_and_depth_is_the_shortest_ranking():
    truth = GroundTruth.from_lists([[1, 2], [], [5]])
    score = evaluate([[1, 2, 3, -1], [4, -1, -1, -1], [6, 5, -1, -1]], truth, ks=(1,))
    assert (score.queries, score.depth) == (2, 2)
    assert score.mean_ap == pytest.approx(100 * (1 + average_precision([6, 5], [5])) / 2)
    assert score.precision[1] == 50
    assert np.isnan(score.by_query).tolist() == [False, True, False]
    assert mean_average_precision([[1], [2]], [[1], []]) == 100
    assert math.isnan(mean_average_precision([[1]], [[]]))


def test_rankings_and_ground_truth_must_have_the_same_number_of_queries():
    with pytest.raises(InvalidInputError, match="2 rankings for a ground truth of 1 queries"):
        evaluate([[1], [2]], GroundTruth.from_lists([[1]]))
    with pytest.raises(InvalidInputError, match="1 queries have positives, 2 have junk"):
        GroundTruth.from_lists([[1]], [[], []])


def test_recall_is_the_fraction_of_exact_neighbors_found():
    assert recall_at(2, np.array([[1, 2, 3]]), np.array([[2, 9, 1]])) == 0.5
