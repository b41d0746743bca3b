"""A stored state of an earlier version, opened by the embedded broker of this one."""

from __future__ import annotations

import json
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from spark_producer.broker import BrokerSettings, LocalBroker, local_broker
from spark_producer.broker.coordinator.coordinator import BrokerCoordinator
from tests.upgrade.versions import STATES


class Stored(NamedTuple):
    """An unpacked state: its directory, and what is in it."""

    directory: Path
    made_ms: int
    engine: str
    transaction_version: int
    sinks: dict[str, Any]


def names() -> list[str]:
    """Return the names of all states."""
    return sorted(path.name.removesuffix(".tar.xz") for path in STATES.glob("*.tar.xz"))


def unpack(name: str, folder: Path) -> Stored:
    """Unpack a state into a folder."""
    with tarfile.open(STATES / f"{name}.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    facts = json.loads((folder / f"{name}.json").read_text())
    return Stored(folder / name, **facts)


@contextmanager
def opened(stored: Stored, **settings: Any) -> Iterator[LocalBroker]:
    """Serve a state. The coordinator's clock goes on from the moment at which the state was made: its transactions would have
    timed out, and its transactional ids expired."""
    past = time.time() - stored.made_ms / 1000
    coordinator = partial(BrokerCoordinator, time_of_day=lambda: time.time() - past)
    chosen = BrokerSettings(transaction_version=stored.transaction_version, auto_create_topics=False, **settings)
    with mock.patch.object(local_broker, "BrokerCoordinator", coordinator):
        broker = LocalBroker(stored.directory, settings=chosen)
    with broker:
        yield broker
