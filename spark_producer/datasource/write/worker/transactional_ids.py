"""The transactional ids of this Python worker: a slot is one id, and holds one transaction at a time.

No other process ever has the same ids, so a transaction that nobody speaks of any more disturbs no other.
"""

from __future__ import annotations

import os
import uuid
from typing import NamedTuple

from spark_producer.common.cluster import ProducerIdAndEpoch
from spark_producer.errors import ExactlyOnceError
from spark_producer.exactly_once.names import task_id

MAX_IDS_PER_SINK = 1000
"""The most slots of one sink in a worker: the most tasks with a transaction of their own that one worker runs in one batch."""


class SinkKey(NamedTuple):
    """An `exactlyOnceId` on a cluster. Two clusters may have the same ids, and know nothing of each other's epochs."""

    name: str
    servers: str


class TransactionalId:
    """One transactional id of a sink. `fencing` is that of the task which left a transaction there; None: there is none."""

    def __init__(self, sink: SinkKey, transactional_id: str) -> None:
        self.sink = sink
        self.transactional_id = transactional_id
        self.fencing: ProducerIdAndEpoch | None = None

    def is_free(self, fencing: ProducerIdAndEpoch) -> bool:
        """Whether a task with this fencing may use the slot.

        If a transaction was left, its batch must have been decided: that is so once the same control id has a newer epoch,
        since it is taken by a BEGIN, which first ends all that is decided. With another producer id of the control id it is not
        known which is the newer one.
        """
        left = self.fencing
        return left is None or (left.producer_id == fencing.producer_id and left.epoch < fencing.epoch)


class TransactionalIdPool:
    """The slots of this process. A forked process begins with none, and with another name."""

    def __init__(self) -> None:
        self._forget()

    def take(self, sink: SinkKey, fencing: ProducerIdAndEpoch) -> TransactionalId:
        """Return a slot that is free for a task of a sink: of those the last used, whose producer is the likeliest to be kept.

        Raises:
            ExactlyOnceError: all slots of the sink have a transaction of this batch, or of one of which too little is known.
        """
        if self._process != os.getpid():
            self._forget()
        ours = [slot for slot in self._slots if slot.sink == sink]
        for slot in reversed(ours):
            if slot.is_free(fencing):
                self._slots.remove(slot)
                self._slots.append(slot)
                return slot
        if len(ours) >= MAX_IDS_PER_SINK:
            self._drop_those_of_another_control_id(sink, fencing)
        made = TransactionalId(sink, task_id(sink.name, self.worker, self._next))
        self._next += 1
        self._slots.append(made)
        return made

    def discard(self, slot: TransactionalId) -> None:
        """Never use a slot again: what is left in its transaction is not known."""
        self._slots.remove(slot)

    def _forget(self) -> None:
        self._process = os.getpid()
        self.worker = uuid.uuid4().hex
        """The name of this process in transactional ids."""
        self._next = 0
        self._slots: list[TransactionalId] = []

    def _drop_those_of_another_control_id(self, sink: SinkKey, fencing: ProducerIdAndEpoch) -> None:
        """Forget slots that no task will find free any more, since the producer id of the control id has changed."""

        def stays(slot: TransactionalId) -> bool:
            return slot.sink != sink or slot.fencing is None or slot.fencing.producer_id == fencing.producer_id

        self._slots[:] = filter(stays, self._slots)
        if sum(slot.sink == sink for slot in self._slots) >= MAX_IDS_PER_SINK:
            raise ExactlyOnceError(
                f"exactlyOnceId {sink.name!r}: {MAX_IDS_PER_SINK} transactions of this Python worker wait for the driver. Each "
                "task with more than exactlyOnceMaxInlineBytes has one: write with fewer tasks (coalesce), or with more executors"
            )
