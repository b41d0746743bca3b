"""The choice of the engine that keeps the records; only this module knows all engines by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeAlias

from spark_producer.broker.settings import BrokerSettings
from spark_producer.broker.storage.base import Storage
from spark_producer.broker.storage.segments import SegmentStorage, holds_segments
from spark_producer.broker.storage.state_file import StateFile
from spark_producer.broker.storage.tiered import TieredStorage, holds_tiers
from spark_producer.errors import ConfigError

OpenStorage: TypeAlias = Callable[[Path, BrokerSettings], Storage]
"""The type of a function that starts an engine in a data directory, which exists and is locked."""

_ENGINES: Final[dict[str, OpenStorage]] = {"segments": SegmentStorage, "tiered": TieredStorage}

WITH_TIERS: Final = frozenset({"tiered"})
"""The engines that keep batches in tiers of memory, which the memory plan bounds."""


def open_storage(data_dir: Path, settings: BrokerSettings) -> Storage:
    """Start the engine that the settings ask for.

    Raises:
        ConfigError: another engine has kept records in the directory.
        CorruptRecord, BrokerError, OSError: the engine cannot begin with what is in the directory.
    """
    asked, found = settings.storage_engine, engine_of(data_dir)
    if found not in (None, asked):
        raise ConfigError(
            f"the data directory {data_dir} was written by the storage engine {found!r}, and storage_engine is {asked!r}: use "
            "that engine, or another directory"
        )
    return _ENGINES[asked](data_dir, settings)


def engine_of(data_dir: Path) -> str | None:
    """Return the name of the engine that has kept records in a data directory, by what lies in it; None if none has.

    Raises:
        OSError: the disk refused.
    """
    if holds_tiers(data_dir):
        return "tiered"
    return "segments" if StateFile(data_dir).exists() or holds_segments(data_dir) else None
