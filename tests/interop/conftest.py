"""Fixtures of the tests beside other implementations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from spark_producer.broker import BrokerSettings, LocalBroker
from spark_producer.broker.settings import DEFAULT_ENGINE, STORAGE_ENGINES
from spark_producer.broker.storage.base import Storage
from spark_producer.broker.storage.engines import open_storage
from tests.support.kafka_node import KAFKA_4, KAFKA_39

NEWEST_FIRST: Final = (KAFKA_4, pytest.param(KAFKA_39, marks=pytest.mark.campaign))
"""Versions of Kafka's tools, for tests that start a JVM for each question."""

OTHER_ENGINE: Final = next(engine for engine in STORAGE_ENGINES if engine != DEFAULT_ENGINE)
"""The second engine on which the clients' tests run."""

KIT: Final = "test_broker_"
"""The modules of the clients' kit begin so."""

ABOUT_SEGMENTS: Final = frozenset({"test_kafkas_own_tool_finds_the_segment_files_in_order"})
"""Tests of the files of the engine "segments", which they name."""

IN_EVERY_RUN: Final = frozenset(
    {
        "test_records_of_every_kind_arrive_as_written",
        "test_an_idempotent_producer_lives_through_a_restart",
        "test_a_group_goes_on_where_it_has_committed",
        "test_foreign_consumers_read_a_compacted_log",
    }
)
"""The tests of the kit that every run plays on the other engine too; a campaign plays all of them."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give each test of the kit both engines."""
    name = metafunc.function.__name__
    if name in ABOUT_SEGMENTS:
        metafunc.parametrize("engine_of_the_kit", ["segments"], indirect=True)
    elif metafunc.module.__name__.rpartition(".")[2].startswith(KIT):
        marks = () if name in IN_EVERY_RUN else (pytest.mark.campaign,)
        engines = [DEFAULT_ENGINE, pytest.param(OTHER_ENGINE, marks=marks)]
        metafunc.parametrize("engine_of_the_kit", engines, indirect=True)


@pytest.fixture(autouse=True)
def engine_of_the_kit(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The storage engine of every embedded broker that the test starts."""
    engine: str = getattr(request, "param", DEFAULT_ENGINE)

    def opened(data_dir: Path, settings: BrokerSettings) -> Storage:
        return open_storage(data_dir, replace(settings, storage_engine=engine))

    defaults = LocalBroker.__init__.__kwdefaults__
    assert defaults is not None
    assert defaults["open_storage"] is open_storage
    monkeypatch.setitem(defaults, "open_storage", opened)
    return engine


@pytest.fixture
def local() -> Iterator[LocalBroker]:
    """An embedded broker of the test's own; a module that wants another one has a `local` of its own."""
    with LocalBroker() as broker:
        yield broker
