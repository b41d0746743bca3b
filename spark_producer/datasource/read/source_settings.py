"""The settings that travel from the driver to the tasks of a read, pickled with its reader."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from spark_producer.config import ConsumerConfig, SourceOptions

if TYPE_CHECKING:  # it needs Arrow, which reads of bytes do not need on the driver
    from spark_producer.schemas.column_reader import Reader


class SourceSettings(NamedTuple):
    """The settings of a read; `decoded` has the columns that are decoded, by their names."""

    config: ConsumerConfig
    source: SourceOptions
    decoded: Mapping[str, Reader] | None = None
