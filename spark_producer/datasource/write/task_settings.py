"""The settings that travel from the driver to the tasks of a write, pickled with its writer."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from spark_producer.config import ProducerConfig, SinkOptions

if TYPE_CHECKING:
    from spark_producer.exactly_once.protocol.task_messages import WriteHandle
    from spark_producer.schemas.column_format import Formats


class TaskSettings(NamedTuple):
    """The settings of a task. `handle` is set in an exactly-once write that has begun.

    `formats` has the formats of columns, if any. `write_id` identifies this execution of the write in dead letters; it is empty
    without a dead-letter topic.
    """

    config: ProducerConfig
    sink: SinkOptions
    buffer_memory_unset: bool = False
    transaction_timeout_unset: bool = False
    streaming: bool = False
    handle: WriteHandle | None = None
    formats: Formats | None = None
    write_id: str = ""
