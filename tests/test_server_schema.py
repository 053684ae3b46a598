"""The API against its own description: whatever is sent, the answer is one that the description names."""

from __future__ import annotations

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import positive_data_acceptance
from synthetic_photos import MadePhotos, make_photos, running
from test_server import API

from logt.server.app import create
from logt.server.photo_collection import PhotoCollection


@pytest.fixture(scope="module")
def described(tmp_path_factory):
    """The description that a running service over photos gives of itself."""
    root = tmp_path_factory.mktemp("described")
    make_photos(root / "photos", root / "index", 4, 2)
    with running(create(PhotoCollection(MadePhotos(root / "photos", root / "index")))) as url:
        yield schemathesis.openapi.from_url(f"{url}/openapi.json")


BARE = {f"GET {API}/{name}" for name in ("info", "health", "metrics")}
"""Operations that take nothing, so that nothing can be wrong."""


@pytest.mark.parametrize("mode", [schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE])
def test_the_api_does_as_its_description_says(described, mode):
    """Whatever is sent, the answer is one that the description names, in its form, and never a server error."""
    names = []
    for found in described.get_all_operations():
        operation = found.ok()
        names.append(operation.label)
        if mode is schemathesis.GenerationMode.NEGATIVE and operation.label in BARE:
            continue

        @settings(max_examples=8, derandomize=True, deadline=None, database=None, suppress_health_check=HealthCheck)
        @given(case=operation.as_strategy(generation_mode=mode))
        def check(case):
            case.call_and_validate(excluded_checks=[positive_data_acceptance])  # no schema knows the dimension

        check()
    assert len(names) == 11
