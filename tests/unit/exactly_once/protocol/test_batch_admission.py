"""Which query may write which batch to a sink."""

from __future__ import annotations

import pytest

from spark_producer.exactly_once.protocol.batch_admission import Admit, Refuse, Skip, admit
from spark_producer.exactly_once.protocol.control_record import NO_BATCH, ControlRecord, Status
from tests.unit.exactly_once.script import SINK, unknown

STREAM = ControlRecord(SINK, "q", Status.DONE, 5, 5, "t")
JOBS = ControlRecord(SINK, "", Status.DONE, 5, 5, "t")

TABLE: list[tuple[ControlRecord | None, str, int, type]] = [
    (None, "q", 0, Admit),
    (None, "", NO_BATCH, Admit),
    (unknown(), "q", 0, Admit),
    (unknown(), "", 7, Admit),
    (STREAM, "q", 6, Admit),
    (STREAM, "q", 9, Admit),
    (STREAM, "q", 5, Skip),
    (STREAM, "q", 4, Refuse),
    (STREAM._replace(status=Status.VOID, last_done=4), "q", 5, Admit),
    (STREAM._replace(status=Status.INTENT, last_done=4), "q", 4, Skip),
    (STREAM, "r", 6, Refuse),
    (STREAM, "", 6, Refuse),
    (JOBS, "q", 6, Refuse),
    (JOBS, "", 6, Admit),
    (JOBS, "", 5, Skip),
    (JOBS, "", 3, Skip),
    (JOBS, "", NO_BATCH, Admit),
]


@pytest.mark.parametrize(("last", "query", "batch", "expected"), TABLE)
def test_admission(last: ControlRecord | None, query: str, batch: int, expected: type) -> None:
    assert isinstance(admit(last, SINK, query, batch), expected)


def test_refusals_name_the_sink_and_both_sides() -> None:
    other = admit(STREAM, SINK, "r", 6)
    assert isinstance(other, Refuse)
    assert all(name in other.reason for name in (SINK, "query q", "query r"))
    rewound = admit(STREAM, SINK, "q", 2)
    assert isinstance(rewound, Refuse)
    assert all(name in rewound.reason for name in (SINK, "batch 5", "batch 2"))
