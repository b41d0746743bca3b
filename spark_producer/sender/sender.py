"""The sender: which requests to send now, and what their answers do to the batches.

Owns: the order of decisions on an answer (spec: kafka_producer.md §2.11), retries, the tally of what was written.
Must not know: sockets, threads, the clock. Owned by the I/O thread.

A batch that cannot be delivered ends the whole producer (`accumulator.fail`): a Spark task has nothing to gain from the
rest, and an idempotent producer with a lost batch could only leave a gap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol, TypeAlias

from spark_producer.accumulator import ProducerBatch, RecordAccumulator, TopicPartition
from spark_producer.errors import Action, KafkaTimeout, PyProducerError, UnsupportedVersion, broker_error, error_code
from spark_producer.metrics import OffsetRange, WriteReport
from spark_producer.protocol import INIT_PRODUCER_ID, METADATA, PRODUCE, Api
from spark_producer.protocol.messages import (
    InitProducerIdRequest,
    InitProducerIdResponse,
    MetadataResponse,
    ProducePartition,
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
    ProduceTopic,
)
from spark_producer.sender.idempotence import ProducerState
from spark_producer.sender.metadata import NO_LEADER, Metadata

NETWORK_EXCEPTION = 13
REQUEST_TIMED_OUT = 7
OUT_OF_ORDER_SEQUENCE_NUMBER = 45
NODE_RECHECK = 0.05
"""Seconds between looks for any node to ask, while all of them are busy or in backoff."""


Tag: TypeAlias = tuple[ProducerBatch, ...]
"""The batches of a Produce request; empty for other requests."""

_Failure: TypeAlias = tuple[ProducerBatch, int, str | None, str]
"""A batch, its error code, the broker's message, and what the broker says of single records."""


class NetworkView(Protocol):
    """What the sender may ask of the network."""

    def ready(self, node: int) -> bool:
        """Whether a request may go to `node` now; starts a connection if there is none."""

    def least_loaded(self) -> int | None:
        """The node for a request that any node can answer; None if all are busy or in backoff."""

    def next_attempt_in(self, node: int) -> float:
        """Seconds until a connection to `node` may be tried again; 0 if it is made, or being made."""


class SenderSettings(NamedTuple):
    """`timeout`: seconds for one request; `acks`: -1 or 1."""

    acks: int
    timeout: float
    max_request_size: int
    retries: int
    idempotent: bool


class Outgoing(NamedTuple):
    """A request to send. The network hands `tag` back with the answer."""

    node: int
    api: Api
    body: tuple[object, ...]
    tag: Tag


class Step(NamedTuple):
    """Requests to send now, at most one to a node, and when to step again if nothing happens before.

    After a step with requests step again at once: a node may take one more. `wake_at` None: only when something happens.
    """

    requests: list[Outgoing]
    wake_at: float | None


class Sender:
    """(state, event, now) → requests."""

    def __init__(
        self,
        accumulator: RecordAccumulator,
        metadata: Metadata,
        settings: SenderSettings,
        backoff: Callable[[int], float],
    ) -> None:
        self.metadata = metadata
        self._accumulator = accumulator
        self._settings = settings
        self._backoff = backoff
        self._state = ProducerState(enabled=settings.idempotent)
        self._asking_for_id = False
        self._id_not_before = 0.0
        self._id_attempts = 0
        self._turn = 0
        self._flights: dict[TopicPartition, tuple[int, int]] = {}
        """for each partition the node that has batches of it in flight, and how many"""
        self._ranges: dict[tuple[str, int], OffsetRange] = {}
        self._totals = [0, 0, 0, 0, 0]

    def step(self, now: float, network: NetworkView) -> Step:
        """Everything that can be sent now."""
        expired = self._accumulator.expired(now)
        if expired is not None:
            self._accumulator.fail(expired)
        if self._accumulator.error is not None:
            return Step([], None)
        times: list[float | None] = []
        places, next_time = self._accumulator.ready(now)
        led = self._by_leader(places)
        requests = self._questions(now, network, times)
        if not self._state.needs_id:
            requests += self._produce(led, {request.node for request in requests}, now, network, times)
        times += (next_time, self._accumulator.next_expiry(), self.metadata.due_at(), self._id_due_at())
        # What is due and could not be sent waits for the network, which wakes us; only later times count.
        return Step(requests, min((time for time in times if time is not None and time > now), default=None))

    def take_report(self) -> WriteReport:
        """What was acknowledged since the last call; call it after a flush."""
        report = WriteReport(self._ranges, *self._totals)
        self._ranges, self._totals = {}, [0, 0, 0, 0, 0]
        return report

    def _questions(self, now: float, network: NetworkView, times: list[float | None]) -> list[Outgoing]:
        """Metadata and producer id, which any node can answer."""
        requests: list[Outgoing] = []
        metadata_due, id_due = self.metadata.due_at(), self._id_due_at()
        if (metadata_due is None or metadata_due > now) and (id_due is None or id_due > now):
            return requests
        node = network.least_loaded()
        if node is None:
            times.append(now + NODE_RECHECK)
        if node is None or not _ready(node, now, network, times):
            return requests
        question = self.metadata.request(now)
        if question is not None:
            requests.append(Outgoing(node, METADATA, question, ()))
        elif id_due is not None and id_due <= now:
            self._asking_for_id = True
            requests.append(Outgoing(node, INIT_PRODUCER_ID, InitProducerIdRequest(), ()))
        return requests

    def _id_due_at(self) -> float | None:
        """When to ask for a producer id; not before the cluster is known."""
        if not self._state.needs_id or self._asking_for_id or not self.metadata.cluster.nodes:
            return None
        return self._id_not_before

    def _by_leader(self, places: list[TopicPartition]) -> dict[int, list[TopicPartition]]:
        """The ready partitions of each node, every time beginning with another one; asks for leaders that are unknown."""
        led: dict[int, list[TopicPartition]] = {}
        self._turn += 1
        turn = self._turn % max(1, len(places))
        for place in places[turn:] + places[:turn]:
            leader = self.metadata.cluster.leader_of(place)
            node, flying = self._flights.get(place, (leader, 0))
            if leader == NO_LEADER:
                self.metadata.request_update()
            elif not flying or node == leader:  # else the former leader answers first, or more than the five batches
                # that brokers remember could be in doubt, and a batch sent again be taken for a gap
                led.setdefault(leader, []).append(place)
        return led

    def _produce(
        self,
        led: dict[int, list[TopicPartition]],
        busy: set[int],
        now: float,
        network: NetworkView,
        times: list[float | None],
    ) -> list[Outgoing]:
        """One request per node that has none in this step, with at most one batch per partition."""
        requests = []
        for node, places in led.items():
            if node not in busy and _ready(node, now, network, times) and (batches := self._take(node, places)):
                requests.append(Outgoing(node, PRODUCE, self._request(batches), tuple(batches)))
        return requests

    def _take(self, node: int, places: Iterable[TopicPartition]) -> list[ProducerBatch]:
        batches: list[ProducerBatch] = []
        room = self._settings.max_request_size
        for place in places:
            # An oversize batch still goes, alone; a smaller one of another partition may fit where this one does not.
            batch = self._accumulator.take(place, room if batches else 1 << 62)
            if batch is not None:
                self._state.stamp(batch)
                self._flights[place] = node, self._flights.get(place, (node, 0))[1] + 1
                batches.append(batch)
                room -= batch.position
        return batches

    def _request(self, batches: list[ProducerBatch]) -> ProduceRequest:
        topics: dict[str, list[ProducePartition]] = {}
        for batch in batches:
            topics.setdefault(batch.place.topic, []).append(ProducePartition(batch.place.partition, batch.data))
        data = tuple(ProduceTopic(topic, tuple(partitions)) for topic, partitions in topics.items())
        self._totals[3] += 1
        return ProduceRequest(None, self._settings.acks, int(self._settings.timeout * 1000), data)

    # --- answers ----------------------------------------------------------------------------------------------------

    def on_completion(self, api: Api, tag: Tag, body: object, error: PyProducerError | None, now: float) -> None:
        """An answer, or why there is none."""
        for batch in tag:
            node, flying = self._flights[batch.place]
            self._flights[batch.place] = node, flying - 1
        if self._accumulator.error is not None:
            return
        if isinstance(error, UnsupportedVersion):
            self._accumulator.fail(error)
        elif api is METADATA:
            self._on_metadata(body, now)
        elif api is INIT_PRODUCER_ID:
            self._on_producer_id(body, now)
        elif isinstance(body, ProduceResponse):
            self._on_produce(tag, body, now)
        else:
            code = REQUEST_TIMED_OUT if isinstance(error, KafkaTimeout) else NETWORK_EXCEPTION
            self.metadata.request_update()
            self._on_errors([(batch, code, str(error), "") for batch in tag], now)

    def on_disconnect(self) -> None:
        """A node went away: its partitions may have other leaders now."""
        self.metadata.request_update()

    def _on_metadata(self, body: object, now: float) -> None:
        if isinstance(body, MetadataResponse):
            self.metadata.on_response(body, now)
        else:
            self.metadata.on_failure(now)

    def _on_producer_id(self, body: object, now: float) -> None:
        self._asking_for_id = False
        if isinstance(body, InitProducerIdResponse) and body.error_code == 0:
            self._state.producer_id, self._state.producer_epoch = body.producer_id, body.producer_epoch
            return
        code = body.error_code if isinstance(body, InitProducerIdResponse) else NETWORK_EXCEPTION
        if isinstance(body, InitProducerIdResponse) and Action.RETRY not in error_code(code).action:
            self._accumulator.fail(broker_error(code, "the request for a producer id (kafka.enable.idempotence)"))
            return
        self._id_not_before = now + self._backoff(self._id_attempts)
        self._id_attempts += 1

    def _on_produce(self, batches: Tag, body: ProduceResponse, now: float) -> None:
        answers = {
            TopicPartition(topic.name, partition.index): partition
            for topic in body.responses
            for partition in topic.partition_responses
        }
        failed: list[_Failure] = []
        for batch in batches:
            answer = answers.get(batch.place)
            if answer is None:
                failed.append((batch, NETWORK_EXCEPTION, "the answer does not name this partition", ""))
            elif answer.error_code == 0 or Action.SUCCESS in error_code(answer.error_code).action:
                self._on_success(batch, answer)
            else:
                failed.append((batch, answer.error_code, answer.error_message, _record_errors(answer)))
        self._on_errors(failed, now)

    def _on_errors(self, failed: Iterable[_Failure], now: float) -> None:
        """Send again, or end the producer; after all successes of the same answer, since the end ends every batch."""
        for batch, code, message, records in failed:
            if self._accumulator.error is None:
                self._on_error(batch, code, message, records, now)

    def _on_success(self, batch: ProducerBatch, answer: ProducePartitionResponse) -> None:
        if answer.base_offset >= 0:
            last = answer.base_offset + batch.records_count - 1
            found = OffsetRange(answer.base_offset, last, batch.records_count)
            known = self._ranges.get(batch.place)
            self._ranges[batch.place] = known.merge(found) if known else found
        for index, number in enumerate((batch.records_count, batch.position, 1)):
            self._totals[index] += number
        self._accumulator.complete(batch, answer.base_offset, answer.log_append_time_ms)

    def _on_error(self, batch: ProducerBatch, code: int, message: str | None, records: str, now: float) -> None:
        row = error_code(code)
        if Action.REFRESH_METADATA in row.action:
            self.metadata.request_update()
        gap = code == OUT_OF_ORDER_SEQUENCE_NUMBER and not self._accumulator.has_earlier(batch)
        if Action.RETRY in row.action and batch.attempts < self._settings.retries and not gap:
            batch.retry_at = now + self._backoff(batch.attempts)
            batch.attempts += 1
            batch.last_error = f"{row.name} ({code}){f': {message}' if message else ''}"
            self._totals[4] += 1
            self._accumulator.put_back(batch)
            return
        place = batch.place
        subject = f"{batch.records_count} records of {batch.position} bytes for {place}, attempt {batch.attempts + 1}{records}"
        self._accumulator.fail(broker_error(code, subject, message, topic=place.topic, partition=place.partition))


def _ready(node: int, now: float, network: NetworkView, times: list[float | None]) -> bool:
    """Whether `node` takes a request now; if it is in backoff, note when that ends."""
    if network.ready(node):
        return True
    if pause := network.next_attempt_in(node):
        times.append(now + pause)
    return False


def _record_errors(answer: ProducePartitionResponse) -> str:
    """The first of the broker's complaints about single records (KIP-467)."""
    if not answer.record_errors:
        return ""
    first = answer.record_errors[0]
    return f" (record {first.batch_index} of the batch: {first.batch_index_error_message or 'refused'})"
