"""Which engine keeps the records: the one place that knows all of them by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from spark_producer.broker.settings import BrokerSettings
from spark_producer.broker.storage.base import Storage
from spark_producer.broker.storage.segments import SegmentStorage

OpenStorage: TypeAlias = Callable[[Path, BrokerSettings], Storage]
"""How an engine is started in a data directory, which exists and is locked."""


def open_storage(data_dir: Path, settings: BrokerSettings) -> Storage:
    """The engine that the settings ask for; there is one."""
    return SegmentStorage(data_dir, settings)
