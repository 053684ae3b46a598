"""The API against its OpenAPI description, with generated requests."""

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import positive_data_acceptance
from server_testing import API, open_album, run_server

from logt.server.app import create_app


@pytest.fixture(scope="module")
def schema(photo_album):
    """The OpenAPI description of a running server with photos."""
    with run_server(create_app(open_album(photo_album))) as url:
        yield schemathesis.openapi.from_url(f"{url}/openapi.json")


WITHOUT_PARAMETERS = {
    *(f"GET {API}/{name}" for name in ("info", "health", "metrics", "folder")),
    *(f"POST {API}/{name}" for name in ("compact", "update")),
}
"""Operations for which no invalid request exists."""


@pytest.mark.parametrize("mode", [schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE])
def test_the_api_matches_its_description(schema, mode):
    """Every response has a documented status and form, and is never a server error."""
    labels = []
    for result in schema.get_all_operations():
        operation = result.ok()
        labels.append(operation.label)
        if mode is schemathesis.GenerationMode.NEGATIVE and operation.label in WITHOUT_PARAMETERS:
            continue

        @settings(max_examples=5, derandomize=True, deadline=None, database=None, suppress_health_check=HealthCheck)
        @given(case=operation.as_strategy(generation_mode=mode))
        def check(case):
            case.call_and_validate(excluded_checks=[positive_data_acceptance])  # the schema lacks the dimension

        check()
    assert len(labels) == 25
