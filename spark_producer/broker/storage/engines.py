"""The choice of the storage engine. Only this module knows all engines by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeAlias

from spark_producer.broker.memory.plan import check_largest_batch
from spark_producer.broker.settings import BrokerSettings
from spark_producer.broker.storage.base import Storage
from spark_producer.broker.storage.segments import SegmentStorage, holds_segments
from spark_producer.broker.storage.state_file import StateFile
from spark_producer.broker.storage.tiered import TieredStorage, holds_tiers
from spark_producer.errors import ConfigError

OpenStorage: TypeAlias = Callable[[Path, BrokerSettings], Storage]
"""Starts an engine in a data directory, which exists and is locked."""

_ENGINES: Final[dict[str, OpenStorage]] = {"segments": SegmentStorage, "tiered": TieredStorage}

WITH_TIERS: Final = frozenset({"tiered"})
"""Names of the engines that keep batches in tiers of memory, which the memory plan bounds."""


def open_storage(data_dir: Path, settings: BrokerSettings) -> Storage:
    """Start the engine of the settings, or else the one that the directory was created with.

    Raises:
        ConfigError: the directory was written by another engine than the settings name; or the settings name a feature that the
            engine does not have.
        CorruptRecord, BrokerError, OSError: the engine cannot open the directory.
    """
    return _ENGINES[chosen_engine(data_dir, settings)](data_dir, settings)


def chosen_engine(data_dir: Path | None, settings: BrokerSettings) -> str:
    """Return the name of the engine for a data directory, or for a new one if `data_dir` is None.

    Raises:
        ConfigError: as `open_storage`; or the engine's memory is too small for the batches that topics accept by default.
        CorruptRecord: `broker.json` cannot be read.
        OSError: the disk refused.
    """
    configured, found = settings.storage_engine, None if data_dir is None else engine_of(data_dir)
    if found is not None and configured not in (None, found):
        raise ConfigError(
            f"cannot open the data directory {data_dir} with storage_engine {configured!r}: it was written by the storage "
            f"engine {found!r}. Use that engine, or another directory"
        )
    engine = found or settings.engine_of_new
    settings.check_engine(engine)
    if engine in WITH_TIERS:
        check_largest_batch(settings.memory, settings.topic.max_message_bytes)
    return engine


def engine_of(data_dir: Path) -> str | None:
    """Return the name of the engine that wrote a data directory, by the files in it; None if none did.

    Raises:
        CorruptRecord: `broker.json` cannot be read.
        OSError: the disk refused.
    """
    if holds_tiers(data_dir):
        return "tiered"
    if StateFile(data_dir).exists():  # the directory of the engine may be missing
        noted = StateFile(data_dir).load().engine
        return noted if noted in _ENGINES else "segments"
    return "segments" if holds_segments(data_dir) else None
