"""Decides which requests fetch the rest of the ranges, and what their responses mean, without sockets, threads or a clock."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

from spark_producer.common.addresses import broker_name
from spark_producer.common.backoff import Backoff
from spark_producer.common.cluster import NO_LEADER
from spark_producer.common.error_codes import Action, Code
from spark_producer.common.isolation_level import IsolationLevel
from spark_producer.common.wait_warning import WaitWarning
from spark_producer.consumer.decoding import FetchedBatches, corrupt
from spark_producer.consumer.known_cluster import KnownCluster, errors_of
from spark_producer.consumer.lost_offsets import report_loss
from spark_producer.consumer.offset_range import OffsetRange
from spark_producer.consumer.partition_fetch import LookUp, PartitionFetch
from spark_producer.consumer.requests import Request, fetch_request, look_up_request, metadata_request
from spark_producer.consumer.settings import FetchSettings
from spark_producer.errors import (
    LOGIN_ADVICE,
    RIGHTS,
    AuthenticationFailed,
    BrokerError,
    KafkaTimeout,
    PyProducerError,
    UnsupportedVersion,
    broker_error,
    text_and_advice,
)
from spark_producer.network.settings import principal
from spark_producer.protocol import FETCH, METADATA, is_misrouted
from spark_producer.protocol.messages import (
    NO_UUID,
    FetchPartitionResponse,
    FetchResponse,
    ListOffsetsResponse,
    MetadataResponse,
    MetadataResponseTopic,
)

GONE_AFTER_S = 5.0
"""Seconds for which brokers must not know a partition before it counts as deleted: metadata spreads within some milliseconds, or
some seconds after the start of a broker (decision 0415)."""

AHEAD = 3
"""Responses of full size that may wait or be in flight: one is decoded, one waits, one arrives. More would not come sooner, and
their memory would be cold when it is decoded."""

REACH_ADVICE = "What to do: see that the brokers run and can be reached, or raise kafka.default.api.timeout.ms"
READ_ADVICE = "grant READ and DESCRIBE on the topic to this user"

NO_TOPIC_IDS: Mapping[str, bytes] = MappingProxyType({})

UNKNOWN = (Code.UNKNOWN_TOPIC_OR_PARTITION, Code.UNKNOWN_TOPIC_ID, Code.INCONSISTENT_TOPIC_ID)
"""The error codes about a partition that was deleted, or that a broker does not know yet."""

_NEVER = float("inf")


class Network(Protocol):
    """The connections, as far as the fetcher asks them (`network.Client`)."""

    def ready(self, node: int) -> bool:
        """Return whether a request may be sent now."""

    def least_loaded(self) -> int | None:
        """Return the best node for a request that any node can answer."""

    def next_attempt_in(self, node: int) -> float:
        """Return the seconds until `ready` may connect again; 0 if it may now, or if there is a connection."""


class Fetcher:
    """Fetches the ranges. One thread at a time owns it (`FetchThread`).

    Each node has one Fetch request in flight, for all partitions that are fetched from it; another response of it may wait to be
    decoded meanwhile. The ranges are of different topic-partitions. `topic_ids` has the ids of their topics, as far as they are
    known: a topic with another id was created again.
    """

    def __init__(
        self,
        settings: FetchSettings,
        ranges: Sequence[OffsetRange],
        cluster: KnownCluster,
        topic_ids: Mapping[str, bytes] = NO_TOPIC_IDS,
    ) -> None:
        self._settings = settings
        self._cluster = cluster
        self._pending = {each.topic_partition: PartitionFetch(*each) for each in ranges if each.start < each.end}
        """What is not fetched yet, in the order of the next request: brokers return a batch of the first partition whatever its
        size (KIP-74)."""
        self.max_bytes = min(settings.max_bytes, AHEAD * settings.partition_bytes * len(self._pending))
        """Maximum bytes of responses that are in flight or not decoded, unless one batch has more."""
        self._fetching: set[int] = set()
        """The nodes with a Fetch request in flight."""
        self._user = principal(settings.connection.security)
        for state in self._pending.values():
            state.bytes_per_offset = cluster.bytes_per_offset.get(state.topic_partition, 0.0)
        self._topic_ids = {name: topic_id for name, topic_id in topic_ids.items() if topic_id != NO_UUID}
        for each in self._pending:  # the leaders of an earlier topic may lead the new one too
            if self._topic_ids.get(each.topic) not in (None, cluster.topic_ids.get(each.topic)):
                cluster.forget(each)
        self._asking_metadata = False
        self._wait_warning = WaitWarning(settings.timeout, "kafka.default.api.timeout.ms")
        self._backoff = Backoff(settings.connection.retry_backoff, settings.connection.retry_backoff_max)
        self.wake_at = 0.0
        """The time of the next `step`, unless a response comes, a connection changes, or memory is released before."""

        self.starved = False
        """Whether the last `step` would have sent more requests with more memory."""

    @property
    def done(self) -> bool:
        """Whether everything is fetched."""
        return not self._pending

    @property
    def must_request(self) -> bool:
        """Whether a range needs another request than those in flight."""
        return any(not each.in_flight for each in self._pending.values())

    # Requests

    def step(self, now: float, network: Network, free: int) -> Iterator[Request]:
        """Yield the requests to send now. Their responses may have `free` bytes together.

        Raises:
            KafkaTimeout: a partition has made no progress for `timeout`.
        """
        self.wake_at, self.starved = _NEVER, False
        self._warn_of_wait(now)
        by_node: dict[int, list[PartitionFetch]] = {}
        leaderless: list[PartitionFetch] = []
        for each in self._pending.values():
            if each.in_flight:
                continue
            self._check_timeout(each, now)
            if each.retry_at > now:
                self._wake_by(each.retry_at)
            elif (leader := self._cluster.leader_of(each.topic_partition)) is None:
                leaderless.append(each)
            elif each.look_up is None:
                if each.replica not in self._cluster.brokers:  # the bootstrap servers may have named others since
                    each.replica = NO_LEADER
                by_node.setdefault(leader.node if each.replica == NO_LEADER else each.replica, []).append(each)
            elif self._ready(leader.node, [each], network, now):
                each.in_flight = True
                yield look_up_request(leader.node, each, each.look_up, leader.epoch)
        if leaderless and not self._asking_metadata:
            yield from self._ask_metadata(leaderless, network, now)
        yield from self._fetches(by_node, network, now, free)

    def _fetches(
        self, by_node: dict[int, list[PartitionFetch]], network: Network, now: float, free: int
    ) -> Iterator[Request]:
        share = max(1, self.max_bytes // (2 * max(1, len(by_node.keys() | self._fetching))))
        for node, partitions in by_node.items():
            if node in self._fetching:
                continue
            if free < share:
                self.starved = True
                return
            if not self._ready(node, partitions, network, now):
                continue
            ids = self._cluster.topic_ids | self._topic_ids
            request = fetch_request(node, partitions, share, self._settings, self._cluster, ids)
            for each in partitions:
                each.in_flight = True
            self._fetching.add(node)
            free -= request.max_bytes
            yield request

    def _ask_metadata(self, leaderless: list[PartitionFetch], network: Network, now: float) -> Iterator[Request]:
        node = network.least_loaded()
        if self._ready(node, leaderless, network, now) and node is not None:
            self._asking_metadata = True
            yield metadata_request(node, dict.fromkeys(each.topic_partition.topic for each in leaderless))

    def _ready(self, node: int | None, partitions: list[PartitionFetch], network: Network, now: float) -> bool:
        """Return whether a request for `partitions` may be sent to `node`; else they wait."""
        if node is not None and network.ready(node):
            return True
        for each in partitions:
            each.waits(now)
            self._wake_by(each.failing_since + self._settings.timeout)
        if node is not None and (pause := network.next_attempt_in(node)):
            self._wake_by(now + pause)
        return False

    def _wake_by(self, when: float) -> None:
        self.wake_at = min(self.wake_at, when)

    def _warn_of_wait(self, now: float) -> None:
        """Log a warning if a partition waits long: the one that has waited longest."""
        longest = min(self._pending.values(), key=lambda each: each.failing_since, default=None)
        if longest is not None and now > longest.failing_since:
            cause = "" if longest.error is None else f" (last: {longest.error})"
            subject = f"{longest.topic_partition} at offset {longest.position}{cause}"
            self._wait_warning(now - longest.failing_since, subject)

    def _check_timeout(self, state: PartitionFetch, now: float) -> None:
        if now - state.failing_since < self._settings.timeout:
            return
        cause, advice = "no connection to a broker", REACH_ADVICE
        if state.error is not None:
            cause, known = text_and_advice(state.error)
            if isinstance(state.error, AuthenticationFailed):  # not fatal, so there is no token
                advice = LOGIN_ADVICE
            elif is_misrouted(state.error):
                advice = f"What to do: {known}"
        raise KafkaTimeout(
            f"reading {state.topic_partition} at offset {state.position} failed: no progress within {self._settings.timeout:g} s "
            f"(default.api.timeout.ms); last: {cause}. {advice}."
        )

    # Responses

    def on_response(
        self, request: Request, body: object, error: PyProducerError | None, now: float
    ) -> Iterator[FetchedBatches]:
        """Handle the end of a request, and yield the batches of its response; `error` stands in place of a response.

        Raises:
            UnsupportedVersion, BrokerError: a broker cannot serve the request, or refuses it for good.
            CorruptRecord: fetched bytes are no batches. DataLoss: offsets are lost, and `fail_on_data_loss` is set.
        """
        for each in request.partitions:
            each.in_flight = False
        if request.api is METADATA:
            self._asking_metadata = False
        if request.api.key == FETCH.key:
            self._fetching.discard(request.node)
        if isinstance(error, UnsupportedVersion):
            raise error
        if error is not None:
            self._failed(request, now, error)
        elif isinstance(body, FetchResponse):
            yield from self._on_fetched(request, body, now)
        elif isinstance(body, MetadataResponse):
            self._on_metadata(request, body, now)
        elif isinstance(body, ListOffsetsResponse):
            self._on_offset(request, body, now)

    def on_disconnect(self, node: int, error: PyProducerError | None, now: float) -> None:
        """Handle the loss of a connection, or a failed attempt to connect: the leaders may be elsewhere."""
        for each in self._pending.values():
            leader = self._cluster.leader_of(each.topic_partition)
            if each.in_flight:
                continue  # its request ends with an error
            if leader is None:
                each.waits(now, error)
            elif node in (leader.node, each.replica):
                self._retry(each, now, error)

    def _failed(self, request: Request, now: float, error: PyProducerError) -> None:
        waiting = [each for each in self._pending.values() if self._cluster.leader_of(each.topic_partition) is None]
        for each in request.partitions or waiting:
            self._retry(each, now, error)

    def _retry(self, state: PartitionFetch, now: float, error: PyProducerError | None) -> None:
        """Look up the leader of a partition again, and wait before that."""
        self._cluster.forget(state.topic_partition)
        state.replica = NO_LEADER
        state.failed(now, self._backoff.delay, error)

    def _on_fetched(self, request: Request, body: FetchResponse, now: float) -> Iterator[FetchedBatches]:
        if body.error_code:
            self._failed(request, now, broker_error(body.error_code, f"Fetch at broker {request.node}"))
            return
        names = {topic.topic_id: topic.topic for topic in request.body.topics if topic.topic_id != NO_UUID}
        rows = {
            (topic.topic or names.get(topic.topic_id), row.partition_index): row
            for topic in body.responses
            for row in topic.partitions
        }
        for index, state in enumerate(request.partitions):
            row = rows.get(state.topic_partition)
            if row is None:
                self._refused(state, Code.NETWORK_EXCEPTION, request.node, now)
            elif row.error_code:
                self._refused(state, row.error_code, request.node, now)
            elif row.preferred_read_replica not in (NO_LEADER, request.node):
                self._go_to_replica(state, row.preferred_read_replica, request.node, now)
            else:
                yield from self._accept(state, row, now, first=index == 0)

    def _go_to_replica(self, state: PartitionFetch, replica: int, node: int, now: float) -> None:
        """Fetch from a follower in the reader's rack, which the leader has named (KIP-392)."""
        if replica in self._cluster.brokers and state.replica == NO_LEADER:
            state.replica = replica
            return
        # The next Metadata response may have the broker; only a leader names a follower, so followers could name each other.
        self._retry(state, now, KafkaTimeout(f"broker {node} names broker {replica} as the replica to read from"))

    def _accept(
        self, state: PartitionFetch, row: FetchPartitionResponse, now: float, *, first: bool
    ) -> Iterator[FetchedBatches]:
        wanted = OffsetRange(state.topic_partition, state.position, state.end)
        fetched = FetchedBatches.from_response(wanted, row, first=first)
        if 0 <= row.high_watermark < fetched.next_offset:  # the base offset, which no checksum covers, may be damaged
            reason = f"a batch ends at offset {fetched.next_offset - 1}, but the high watermark is {row.high_watermark}"
            state.failed(now, self._backoff.delay, corrupt(state.topic_partition, state.position, reason))
            return
        visible = (
            row.last_stable_offset if self._settings.isolation is IsolationLevel.READ_COMMITTED else row.high_watermark
        )
        if fetched.next_offset > state.position:
            self._advance(state, fetched.next_offset, len(fetched.data))
            yield fetched._replace(lag=max(0, visible - fetched.next_offset))
            return
        if visible > state.position:
            if first:  # a broker returns at least one batch of the first partition, so this one contradicts itself
                state.failed(now, self._backoff.delay)
            return
        if row.high_watermark > state.position:
            open_transaction = f"a transaction that is open since offset {state.position} or before"
            state.failed(now, self._backoff.delay, KafkaTimeout(f"{open_transaction} hides records (read_committed)"))
            return
        state.waits(now)
        state.look_up = LookUp.END

    def _advance(self, state: PartitionFetch, position: int, size: int = 0) -> None:
        """Record progress. The partition goes to the end of the next request."""
        del self._pending[state.topic_partition]
        state.advance(position, size)
        self._cluster.bytes_per_offset[state.topic_partition] = state.bytes_per_offset
        if not state.done:
            self._pending[state.topic_partition] = state

    def _refused(self, state: PartitionFetch, code: int, node: int, now: float) -> None:
        """Handle the error code of a partition from broker `node`."""
        error = self._error(code, f"{state.topic_partition} at offset {state.position}, read from broker {node}")
        if code == Code.OFFSET_OUT_OF_RANGE and state.replica != NO_LEADER:
            # a follower may lag: ask the leader (KIP-392)
            state.replica = NO_LEADER
            state.failed(now, self._backoff.delay, error)
        elif code == Code.OFFSET_OUT_OF_RANGE:
            state.waits(now, error)
            state.look_up = LookUp.START
        elif code == Code.CORRUPT_MESSAGE:
            raise corrupt(
                state.topic_partition, state.position, "the broker finds its log damaged. See the broker's log"
            )
        elif code in UNKNOWN:
            self._unknown(state, now, error)
        elif Action.RETRY in Code(code).action:
            self._retry(state, now, error)
        else:
            raise error

    def _error(self, code: int, subject: str) -> BrokerError:
        return broker_error(code, subject, user=self._user, advice=READ_ADVICE if Code(code) in RIGHTS else "")

    # Leaders

    def _on_metadata(self, request: Request, body: MetadataResponse, now: float) -> None:
        if problem := self._cluster.learn(body, self._broker_name(request.node)):
            self._failed(request, now, problem)
            return
        found = {row.name: row for row in body.topics}
        requested = {row.name: found.get(row.name) for row in request.body.topics}
        error_of = errors_of(requested)
        for state in list(self._pending.values()):
            name = state.topic_partition.topic
            if name in requested and not state.in_flight:
                another = self._has_another_id(requested[name])
                self._on_leader(state, Code.INCONSISTENT_TOPIC_ID if another else error_of(state.topic_partition), now)

    def _on_leader(self, state: PartitionFetch, code: int, now: float) -> None:
        if not code and self._cluster.leader_of(state.topic_partition) is not None:
            state.unknown_since = _NEVER
            return
        error = self._error(code or Code.LEADER_NOT_AVAILABLE, str(state.topic_partition))
        if code in UNKNOWN:
            self._unknown(state, now, error)
        elif not code or Action.RETRY in Code(code).action:
            self._retry(state, now, error)
        else:
            raise error

    def _unknown(self, state: PartitionFetch, now: float, error: BrokerError) -> None:
        """Handle that a broker does not know a partition, or another topic of the name: it is deleted if that stays so."""
        state.unknown_since = min(state.unknown_since, now)
        if now - state.unknown_since < GONE_AFTER_S:
            self._retry(state, now, error)
            return
        created_again = error.code == Code.INCONSISTENT_TOPIC_ID
        deleted = "the brokers do not know the partition: its topic was deleted"
        cause = "the topic was deleted and created again" if created_again else deleted
        self._lost(state, state.end, cause, "see who deleted the topic")

    def _has_another_id(self, topic: MetadataResponseTopic | None) -> bool:
        """Return whether a topic has another id than expected, or than in the first response: it was created again (KIP-516)."""
        if topic is None or topic.topic_id == NO_UUID:
            return False
        return self._topic_ids.setdefault(topic.name or "", topic.topic_id) != topic.topic_id

    def _broker_name(self, node: int) -> str:
        servers = self._settings.connection.bootstrap
        host, port = self._cluster.brokers.get(node, (None, 0)) if node >= 0 else servers[-1 - node]
        return broker_name(node, host, port)

    # Offsets that are not there

    def _on_offset(self, request: Request, body: ListOffsetsResponse, now: float) -> None:
        [state] = request.partitions
        topic, partition = state.topic_partition
        rows = (row for each in body.topics if each.name == topic for row in each.partitions)
        row = next((row for row in rows if row.partition_index == partition), None)
        if row is None or row.error_code or row.offset < 0:  # the start and the end of a log are never negative
            code = Code.NETWORK_EXCEPTION if row is None else row.error_code or Code.NETWORK_EXCEPTION
            self._refused(state, code, request.node, now)
        elif state.look_up is LookUp.START:
            state.log_start, state.look_up = row.offset, LookUp.END
        else:
            start, state.log_start, state.look_up = state.log_start, -1, None
            self._compare_with_log(state, start, row.offset, now)

    def _compare_with_log(self, state: PartitionFetch, log_start: int, log_end: int, now: float) -> None:
        """Go on within the log, which has the offsets from `log_start` to `log_end`."""
        if log_start > state.position:
            cause = f"the log starts at offset {log_start}"
            advice = "raise the retention of the topic (retention.ms, retention.bytes)"
            self._lost(state, min(log_start, state.end), cause, advice)
        elif log_end <= state.position:
            cause = f"the log ends at offset {log_end}"
            advice = "see whether the topic was created again, or lost records by an unclean election of a leader"
            self._lost(state, state.end, cause, advice)
        else:  # the broker contradicts itself, or the log has grown meanwhile
            state.failed(now, self._backoff.delay)

    def _lost(self, state: PartitionFetch, until: int, cause: str, advice: str) -> None:
        """Report the loss of the offsets from the position to `until`, and go on there."""
        tp, first, fail = state.topic_partition, state.position, self._settings.fail_on_data_loss
        loss = f"{tp}: offsets {first} to {until - 1} are lost, because {cause}"
        option = self._settings.loss_option
        report_loss(loss, advice, fail=fail, option=option, topic_partition=tp, first=first, end=until)
        self._advance(state, until)
