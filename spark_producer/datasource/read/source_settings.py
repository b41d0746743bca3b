"""The settings that travel from the driver to the tasks of a read, pickled with its reader."""

from __future__ import annotations

from typing import NamedTuple

from spark_producer.config import ConsumerConfig, SourceOptions


class SourceSettings(NamedTuple):
    """The settings of a read."""

    config: ConsumerConfig
    source: SourceOptions
