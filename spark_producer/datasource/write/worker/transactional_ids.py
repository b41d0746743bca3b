"""The transactional ids of this Python worker. Each has one transaction at a time.

No other process ever has the same ids, so a forgotten transaction does not disturb another one.
"""

from __future__ import annotations

import os
import uuid
from typing import NamedTuple

from spark_producer.common.cluster import ProducerIdAndEpoch
from spark_producer.errors import ExactlyOnceError
from spark_producer.exactly_once.names import task_id

MAX_IDS_PER_SINK = 1000
"""Maximum number of ids of one sink in a worker. Each task of a batch that this worker runs with a transaction needs one."""


class SinkKey(NamedTuple):
    """An `exactlyOnceId` on a cluster. Two clusters may have the same ids, with different epochs."""

    name: str
    servers: str


class TransactionalId:
    """One transactional id of a sink. `fencing` is the fencing of the task that left its transaction open, or
    None."""

    def __init__(self, sink: SinkKey, name: str) -> None:
        self.sink = sink
        self.name = name
        self.fencing: ProducerIdAndEpoch | None = None

    def is_free(self, fencing: ProducerIdAndEpoch) -> bool:
        """Return whether a task with this fencing may use the id.

        If a transaction was left open, its batch must be decided. That is certain once the control id has a newer epoch: the
        BEGIN that takes it first ends all decided transactions. If the control id has another producer id, it is
        unknown which epoch is newer.
        """
        left = self.fencing
        return left is None or (left.producer_id == fencing.producer_id and left.epoch < fencing.epoch)


class TransactionalIdPool:
    """The transactional ids of this process. A forked process begins with none, and with another worker name."""

    def __init__(self) -> None:
        self._forget()

    def take(self, sink: SinkKey, fencing: ProducerIdAndEpoch) -> TransactionalId:
        """Return a free id for a task of a sink: the last used one, whose producer is the likeliest to be in the cache.

        Raises:
            ExactlyOnceError: all ids of the sink have a transaction of this batch, or of one whose state is unknown.
        """
        if self._process != os.getpid():
            self._forget()
        own = [each for each in self._ids if each.sink == sink]
        for each in reversed(own):
            if each.is_free(fencing):
                self._ids.remove(each)
                self._ids.append(each)
                return each
        if len(own) >= MAX_IDS_PER_SINK:
            self._drop_those_of_another_control_id(sink, fencing)
        created = TransactionalId(sink, task_id(sink.name, self.worker, self._next))
        self._next += 1
        self._ids.append(created)
        return created

    def discard(self, each: TransactionalId) -> None:
        """Never use an id again: the state of its transaction is unknown."""
        self._ids.remove(each)

    def _forget(self) -> None:
        self._process = os.getpid()
        self.worker = uuid.uuid4().hex
        """The name of this process in transactional ids."""
        self._next = 0
        self._ids: list[TransactionalId] = []

    def _drop_those_of_another_control_id(self, sink: SinkKey, fencing: ProducerIdAndEpoch) -> None:
        """Forget ids that will never be free again, since the producer id of the control id has changed."""

        def stays(each: TransactionalId) -> bool:
            return each.sink != sink or each.fencing is None or each.fencing.producer_id == fencing.producer_id

        self._ids[:] = filter(stays, self._ids)
        if sum(each.sink == sink for each in self._ids) >= MAX_IDS_PER_SINK:
            raise ExactlyOnceError(
                f"exactlyOnceId {sink.name!r}: {MAX_IDS_PER_SINK} transactions of this Python worker wait for the driver. Each "
                "task with more than exactlyOnceMaxInlineBytes has one. Write with fewer tasks (coalesce), or with more executors"
            )
