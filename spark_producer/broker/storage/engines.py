"""The choice of the engine that keeps the records; only this module knows all engines by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeAlias

from spark_producer.broker.settings import BrokerSettings
from spark_producer.broker.storage.base import Storage
from spark_producer.broker.storage.segments import SegmentStorage

OpenStorage: TypeAlias = Callable[[Path, BrokerSettings], Storage]
"""The type of a function that starts an engine in a data directory, which exists and is locked."""


ENGINE: Final = "segments"
"""The name of the engine that `open_storage` starts."""

HAS_TIERS: Final = False
"""Whether that engine keeps batches in tiers of memory, which the memory plan bounds."""


def open_storage(data_dir: Path, settings: BrokerSettings) -> Storage:
    """Start the engine that the settings ask for; so far there is only one."""
    return SegmentStorage(data_dir, settings)
