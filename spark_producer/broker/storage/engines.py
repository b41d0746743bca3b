"""The choice of the engine that keeps the records; only this module knows all engines by name."""

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
"""The type of a function that starts an engine in a data directory, which exists and is locked."""

_ENGINES: Final[dict[str, OpenStorage]] = {"segments": SegmentStorage, "tiered": TieredStorage}

WITH_TIERS: Final = frozenset({"tiered"})
"""The engines that keep batches in tiers of memory, which the memory plan bounds."""


def open_storage(data_dir: Path, settings: BrokerSettings) -> Storage:
    """Start the engine that the settings ask for, or else the one that the directory began with.

    Raises:
        ConfigError: the settings name an engine, and another one has kept records in the directory; or they ask the engine for
            what it does not have.
        CorruptRecord, BrokerError, OSError: the engine cannot begin with what is in the directory.
    """
    return _ENGINES[chosen_engine(data_dir, settings)](data_dir, settings)


def chosen_engine(data_dir: Path | None, settings: BrokerSettings) -> str:
    """Return the name of the engine that will keep the records in a data directory; None stands for a new one.

    Raises:
        ConfigError: as `open_storage`; or the engine's memory is too small for the batches that topics accept by default.
        CorruptRecord: `broker.json` cannot be read.
        OSError: the disk refused.
    """
    asked, found = settings.storage_engine, None if data_dir is None else engine_of(data_dir)
    if found is not None and asked not in (None, found):
        raise ConfigError(
            f"the data directory {data_dir} was written by the storage engine {found!r}, and storage_engine is {asked!r}: use "
            "that engine, or another directory"
        )
    engine = found or settings.engine_of_new
    settings.check_engine(engine)
    if engine in WITH_TIERS:
        check_largest_batch(settings.memory, settings.topic.max_message_bytes)
    return engine


def engine_of(data_dir: Path) -> str | None:
    """Return the name of the engine that has kept records in a data directory, by what lies in it; None if none has.

    Raises:
        CorruptRecord: `broker.json` cannot be read.
        OSError: the disk refused.
    """
    if holds_tiers(data_dir):
        return "tiered"
    if StateFile(data_dir).exists():  # the folder of an engine may be lost
        noted = StateFile(data_dir).load().engine
        return noted if noted in _ENGINES else "segments"
    return "segments" if holds_segments(data_dir) else None
