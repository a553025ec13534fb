"""Schemathesis: random requests to every route of /openapi.json, valid and invalid ones.

That all its valid ones are accepted is not checked: a schema cannot say which fields exclude each
other, nor that 3.0 is no token.
"""

from __future__ import annotations

import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.specs.openapi.checks import positive_data_acceptance

from tests.conformance.clients.asked import URL

schema = schemathesis.openapi.from_url(f"{URL}/openapi.json")


@schema.parametrize()
@settings(max_examples=25, deadline=None, suppress_health_check=[*HealthCheck])
def test_route(case: schemathesis.Case) -> None:
    case.call_and_validate(timeout=60, excluded_checks=[positive_data_acceptance])
