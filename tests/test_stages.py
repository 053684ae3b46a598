"""Stages that are not part of logt: searched at once, saved and opened once they are registered."""

import re
from dataclasses import dataclass, make_dataclass, replace

import numpy as np
import pytest
from exact_index import built

import logt
from logt import CorruptIndexError, InvalidInputError
from logt.group_testing import method
from logt.group_testing.grouping import Units
from logt.group_testing.method import register_stage
from logt.methods import lo_gt


@dataclass(frozen=True)
class RolledComponent:
    shift: int = 0

    def __call__(self, X, rng, workers=None):
        largest = np.roll(np.abs(X), self.shift, axis=1).argmax(axis=1)
        return Units(largest[:, None].astype(np.int32), X.shape[1])


@pytest.fixture
def index(rng):
    return built(rng.standard_normal((100, 8)), method=replace(lo_gt(L=8), group=RolledComponent(1)))


@pytest.fixture(autouse=True)
def registry():
    """Forget at the end what a test registers."""
    known = dict(method.STAGES)
    yield
    method.STAGES.update(known)


def test_a_stage_that_is_not_registered_is_refused_before_anything_is_written(index, tmp_path):
    with pytest.raises(InvalidInputError, match=r"'RolledComponent' is not registered: call .*register_stage"):
        index.save(tmp_path / "index")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("shift", [np.float32(1), np.arange(2), {"by": 1}, [np.int64(1)], b"1", 1j])
def test_a_parameter_that_cannot_be_saved_is_refused_by_name_before_anything_is_written(tmp_path, shift):
    register_stage("group", RolledComponent)
    index = logt.Index(8, method=replace(lo_gt(L=8), group=RolledComponent(shift)))
    message = re.escape(f"the parameter 'shift' of the stage 'RolledComponent' is {shift!r}")
    with pytest.raises(InvalidInputError, match=message):
        index.save(tmp_path / "index")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("shift", [1, 0.5, np.float64(0.5), "one", None, True, [1, [2]]])
def test_parameters_of_plain_types_are_saved(tmp_path, shift):
    register_stage("group", RolledComponent)
    logt.Index(8, method=replace(lo_gt(L=8), group=RolledComponent(shift))).save(tmp_path / "index")
    assert logt.open(tmp_path / "index").method.group == RolledComponent(shift)


def test_a_registered_stage_is_saved_and_opened_with_its_parameters(index, tmp_path, rng):
    register_stage("group", RolledComponent)
    register_stage("group", RolledComponent)  # as a cell of a notebook that is run again
    index.save(tmp_path / "index")
    opened, Q = logt.open(tmp_path / "index"), rng.standard_normal((5, 8))
    assert opened.method == index.method
    assert (opened.search(Q, 10).ids == index.search(Q, 10).ids).all()


def test_an_index_of_a_stage_that_is_not_registered_names_it(index, tmp_path):
    register_stage("group", RolledComponent)
    index.save(tmp_path / "index")
    method.STAGES["group"] = method.STAGES["group"][:-1]
    with pytest.raises(CorruptIndexError, match=r"'RolledComponent' is not registered: .* before you open"):
        logt.open(tmp_path / "index")


def test_what_cannot_be_a_stage_is_refused():
    for field, stage, message in (
        ("units", RolledComponent, "field must be one of 'group'"),
        ("group", RolledComponent(), "a class that is a dataclass"),
        ("group", int, "a class that is a dataclass"),
        ("group", make_dataclass("Random", []), "another stage 'Random'"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            register_stage(field, stage)
