"""Failures that end every wait, as a table of what happened to which node."""

from __future__ import annotations

import pytest

from spark_producer.errors import AuthenticationFailed, ConnectionFailed, PyProducerError, TlsFailed
from spark_producer.network.fatal_errors import FatalErrors

EXPIRED = TlsFailed("expired", fatal=True)
REFUSED = ConnectionFailed("refused")
PASSWORD = AuthenticationFailed("wrong password", fatal=True)
OPENED = None


@pytest.mark.covers("SEC43")
@pytest.mark.parametrize(
    ("events", "ends"),
    [
        ([(-1, EXPIRED)], False),
        ([(-1, EXPIRED), (-2, REFUSED)], True),
        ([(-1, PASSWORD)], True),
        ([(-1, EXPIRED), (-2, OPENED)], False),
        ([(-1, EXPIRED), (-2, OPENED), (-1, EXPIRED)], False),
        ([(-1, EXPIRED), (-2, OPENED), (-1, EXPIRED), (-1, EXPIRED)], True),
        ([(-2, OPENED), (1, EXPIRED), (2, EXPIRED), (1, OPENED), (1, EXPIRED)], False),
        ([(-2, OPENED), (1, EXPIRED), (1, REFUSED), (1, EXPIRED)], True),
    ],
)
def test_a_node_may_refuse_once_after_a_success(events: list[tuple[int, PyProducerError | None]], ends: bool) -> None:
    """A rejection before the first success does not count: it may have been long ago."""
    refusals = FatalErrors([-1, -2])
    for node, error in events:
        assert refusals.fatal_error is None
        if error is None:
            refusals.opened(node)
        else:
            refusals.failed(node, error)
    assert (refusals.fatal_error is not None) is ends


@pytest.mark.covers("SEC43")
def test_a_brokers_certificate_ends_nothing_while_others_let_us_in() -> None:
    refusals = FatalErrors([-1])
    refusals.opened(-1)
    for _ in range(3):
        assert refusals.failed(1, EXPIRED, others_ready=True), "and the pauses are long"
    assert refusals.fatal_error is None
    refusals.failed(1, EXPIRED)
    assert refusals.fatal_error is EXPIRED


@pytest.mark.covers("SEC43")
def test_a_password_is_the_same_for_all_brokers() -> None:
    refusals = FatalErrors([-1])
    refusals.opened(-1)
    refusals.failed(1, PASSWORD, others_ready=True)
    assert refusals.fatal_error is None
    refusals.failed(1, PASSWORD, others_ready=True)
    assert refusals.fatal_error is PASSWORD
