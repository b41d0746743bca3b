"""The settings that travel from the driver to the tasks of a write, pickled with its writer."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from spark_producer.config import ProducerConfig, SinkOptions

if TYPE_CHECKING:
    from spark_producer.exactly_once.protocol.task_messages import WriteHandle
    from spark_producer.schemas.column_format import Formats


class TaskSettings(NamedTuple):
    """What travels from the driver to the tasks. `own_memory` is true if the user has not set `buffer.memory`.

    `own_time` is true if the user has not set how long a transaction may take. `handle` is there in an exactly-once write, once
    it has begun. `formats` says how columns become bytes, if any do. `write_id` names this execution of the write; it is empty
    where there are no dead letters, which alone tell it.
    """

    config: ProducerConfig
    sink: SinkOptions
    own_memory: bool = False
    own_time: bool = False
    streaming: bool = False
    handle: WriteHandle | None = None
    formats: Formats | None = None
    write_id: str = ""
