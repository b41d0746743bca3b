"""A real Prometheus scrapes a driver, clients that push (KIP-714) and an embedded broker: every query has an answer."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.dashboard.__main__ import draw_rows
from tests.dashboard.fleet import fleet
from tests.dashboard.panels import targets
from tests.support.prometheus import missing
from tests.support.waiting import wait_until

SECONDS = 240
pytestmark = [
    pytest.mark.nightly,
    pytest.mark.kafka,
    pytest.mark.skipif(bool(missing()), reason=f"make prometheus installs {missing()}"),
]


def test_every_query_has_an_answer_that_can_be_drawn(spark: SparkSession, tmp_path: Path) -> None:
    with fleet(spark.newSession(), tmp_path) as running:
        left: list[str] = []

        def all_answered() -> bool:
            left[:] = running.unanswered()
            return not left

        wait_until(all_answered, "an answer to each query", seconds=SECONDS, pause=1, more=lambda: "\n".join(left))
        assert running.prometheus.scraped() == {"drivers", "clients", "brokers"}
        drawn = draw_rows(running, 30, tmp_path)
    assert len(drawn) == len({target.row for target in targets()})
    for path in drawn:
        assert "prefers-color-scheme: dark" in path.read_text(encoding="utf-8")
