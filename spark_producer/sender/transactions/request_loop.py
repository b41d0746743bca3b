"""Sends the requests of a transactional producer to its coordinators, one at a time, and handles the responses.

Only the I/O thread calls this module. `manager` decides on the next request, `requests` builds the messages, and `errors` has the
action for each error code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from spark_producer.accumulator import ProducerIdAndEpoch
from spark_producer.common.cluster import TRANSACTIONS, TopicPartition, TransactionVersion, transaction_version_at
from spark_producer.common.error_codes import Code
from spark_producer.errors import ProducerFenced, PyProducerError, UnsupportedVersion, broker_error
from spark_producer.protocol import FIND_COORDINATOR, AnyApi
from spark_producer.protocol.messages import InitProducerIdResponse
from spark_producer.protocol.messages.groups import FindCoordinatorResponse
from spark_producer.protocol.messages.transactions import (
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnResponse,
    EndTxnResponse,
    TxnOffsetCommitResponse,
)
from spark_producer.sender.coordinators import CoordinatorKey, Coordinators, KeyType, find_coordinator_request
from spark_producer.sender.metadata import Metadata
from spark_producer.sender.network_view import NODE_RECHECK, ClientRequest, NetworkView
from spark_producer.sender.transactions import requests
from spark_producer.sender.transactions.errors import ErrorAction, TxnRequest, action_for
from spark_producer.sender.transactions.manager import TransactionManager
from spark_producer.sender.transactions.partitions import GroupOffsets

SHORT_PAUSE = 0.02
"""Seconds before the first request of a transaction is retried while the coordinator still writes the markers of the previous
one, which takes some milliseconds (Kafka: ADD_PARTITIONS_RETRY_BACKOFF_MS)."""

MAX_SHORT_PAUSES = 50
"""Maximum number of these retries, which take a second. After it the markers wait for a lost leader, and the usual backoff
follows."""

FENCED_ADVICE = (
    "a newer producer with the same transactional id took over, or the transaction took longer than transaction.timeout.ms; "
    "close this producer, and write the rows again with a new one if it is the one to go on"
)

EXPIRED_ADVICE = (
    "the brokers have forgotten the transactional id, idle for longer than their transactional.id.expiration.ms (7 days by "
    "default), and perhaps a newer producer took it over, or the transaction took longer than transaction.timeout.ms; close this "
    "producer, and write the rows again with a new one. Where producers idle for so long, raise that setting of the brokers"
)
"""Advice for INVALID_PRODUCER_ID_MAPPING. A producer that another one fences keeps its producer id, unless the epochs are used
up."""

DOUBTFUL_ADVICE = (
    "; but check first what was written, since an earlier commit request had no response and may have succeeded"
)

_BY_SEVERITY = (
    ErrorAction.FENCED, ErrorAction.FATAL, ErrorAction.REFUSED, ErrorAction.LOOK_UP, ErrorAction.RETRY, ErrorAction.ABORTABLE,
    ErrorAction.DONE,
)  # fmt: skip
"""The order of the actions if the partitions of a response differ: the first one counts. After a retry the others recur."""


class InFlightRequest(NamedTuple):
    """The request in flight. `key` selects its coordinator; `about` has its partitions or offsets."""

    kind: TxnRequest
    api: AnyApi
    key: CoordinatorKey
    transaction_version: TransactionVersion
    about: frozenset[TopicPartition] | GroupOffsets | None = None


class TransactionRequestLoop:
    """The requests of a transactional producer to its coordinators, and the handlers of their responses."""

    def __init__(self, manager: TransactionManager, metadata: Metadata, backoff: Callable[[int], float]) -> None:
        self._manager = manager
        self._metadata = metadata
        self._backoff = backoff
        self._coordinators = Coordinators()
        self._in_flight: InFlightRequest | None = None
        self._not_before = 0.0
        self._attempts = 0

    def step(self, now: float) -> None:
        """Execute posted calls, and request metadata if the coordinator's node is unknown."""
        self._manager.step(now)
        kind = self._manager.next_request()
        if kind is not None and self._in_flight is None:
            key, nodes = self._coordinator_key(kind), self._metadata.cluster.nodes
            if nodes and self._coordinators.has_left(key, nodes, self._metadata.response_count):
                self._coordinators.forget(key)
                self._pause(
                    self._backoff(self._attempts), now
                )  # the brokers may not agree yet on the nodes of the cluster
            node = self._coordinators.node_of(key)
            if not nodes or (node is not None and node not in nodes):
                self._metadata.request_nodes()

    def handles(self, api: AnyApi) -> bool:
        """Return whether this class handles the responses of an API."""
        return api.key in requests.APIS

    def on_disconnect(self, node: int) -> None:
        """Forget the coordinators on a node that was disconnected."""
        self._coordinators.on_disconnect(node)

    # --- requests --------------------------------------------------------------------------------------------------

    def next_requests(self, now: float, network: NetworkView, times: list[float | None]) -> list[ClientRequest]:
        """Return the request that is due, at most one. Add the time of the next check to `times`."""
        kind = None if self._in_flight is not None else self._manager.next_request()
        if kind is None or not self._metadata.cluster.nodes:
            return []
        if self._not_before > now:
            times.append(self._not_before)
            return []
        key = self._coordinator_key(kind)
        known = self._coordinators.node_of(key)
        node = network.least_loaded() if known is None else known
        has_left = known is not None and known not in self._metadata.cluster.nodes
        if node is None or has_left or not network.ready(node):
            times.append(now + self._wait_for(node, known, key, network))
            return []
        transaction_version = transaction_version_at(network.finalized_level(TRANSACTIONS))
        if known is None:
            self._in_flight = InFlightRequest(TxnRequest.FIND_COORDINATOR, FIND_COORDINATOR, key, transaction_version)
            outgoing = requests.ApiRequest(FIND_COORDINATOR, find_coordinator_request(key))
        else:
            outgoing = self._build(kind, key, transaction_version, now)
        self._manager.busy = True
        return [ClientRequest(node, outgoing.api, outgoing.body, ())]

    def _wait_for(self, node: int | None, known: int | None, key: CoordinatorKey, network: NetworkView) -> float:
        """Return the seconds until the next check of a node that accepts no request now."""
        pause = network.next_attempt_in(node) if node is not None else 0.0
        if pause and known is not None:  # its connection has failed, so another node may be the coordinator now
            self._coordinators.forget(key)
        return pause or NODE_RECHECK

    def _coordinator_key(self, kind: TxnRequest) -> CoordinatorKey:
        if kind is TxnRequest.COMMIT_OFFSETS:
            return CoordinatorKey(KeyType.GROUP, self._manager.next_offsets().group.group_id)
        return CoordinatorKey(KeyType.TRANSACTION, self._manager.transactional_id)

    def _build(
        self, kind: TxnRequest, key: CoordinatorKey, transaction_version: TransactionVersion, now: float
    ) -> requests.ApiRequest:
        """Return a request, and store it as the one in flight."""
        manager = self._manager
        name, timeout_ms = manager.transactional_id, manager.settings.transaction_timeout_ms
        identity, contents = manager.identity, manager.contents
        about: frozenset[TopicPartition] | GroupOffsets | None = None
        if kind is TxnRequest.INIT:
            outgoing = requests.init(name, timeout_ms)
        elif kind is TxnRequest.RAISE_EPOCH:
            outgoing = requests.init(name, timeout_ms, identity)
        elif kind is TxnRequest.ADD_PARTITIONS:
            contents.record_start(now)
            about = frozenset(contents.waiting)
            outgoing = requests.add_partitions(name, identity, contents.waiting)
        elif kind is TxnRequest.ADD_OFFSETS:
            contents.record_start(now)
            about = manager.next_offsets()
            outgoing = requests.add_offsets(name, identity, about.group.group_id)
        elif kind is TxnRequest.COMMIT_OFFSETS:
            contents.record_start(now)
            about = manager.next_offsets()
            outgoing = requests.commit_offsets(name, identity, about, manager.transaction_version)
        else:
            if kind is TxnRequest.COMMIT:
                manager.seal(now)
            outgoing = requests.end(name, identity, manager.transaction_version, commit=kind is TxnRequest.COMMIT)
        self._in_flight = InFlightRequest(kind, outgoing.api, key, transaction_version, about)
        return outgoing

    # --- responses ----------------------------------------------------------------------------------------------------

    def on_completion(self, body: object, error: PyProducerError | None, now: float) -> None:
        """Handle the response to the request in flight, or its error."""
        request, self._in_flight = self._in_flight, None
        self._manager.busy = False
        if request is None:
            return
        if body is None:
            self._on_failure(request, error, now)
            return
        is_lookup = request.kind is TxnRequest.FIND_COORDINATOR
        codes = self._coordinator_found(request.key, body) if is_lookup else _codes_in(body, request.about)
        code, tp = min(codes, key=lambda found: self._severity(request, found[0]))
        action = self._action_for(request, code)
        if action is ErrorAction.DONE:
            self._attempts, self._not_before = 0, 0.0
            self._done(request, body, now)
        elif action is ErrorAction.RETRY or action is ErrorAction.LOOK_UP:
            self._retry(request, code, action, now)
        else:
            self._on_error(request, code, tp, action, now)

    def _severity(self, request: InFlightRequest, code: int) -> tuple[int, bool]:
        """Return the sort key of an error code; the minimum counts. 55 only refers to the error of another partition."""
        return _BY_SEVERITY.index(self._action_for(request, code)), code == Code.OPERATION_NOT_ATTEMPTED

    def _action_for(self, request: InFlightRequest, code: int) -> ErrorAction:
        contents = self._manager.contents
        if request.kind is TxnRequest.ABORT and code == Code.INVALID_TXN_STATE and not contents.started:
            return ErrorAction.DONE  # the request that might have begun it has not arrived
        looks_up_to_init = (
            request.kind is TxnRequest.FIND_COORDINATOR and self._manager.next_request() is TxnRequest.INIT
        )
        return action_for(TxnRequest.INIT if looks_up_to_init else request.kind, code)

    def _coordinator_found(self, key: CoordinatorKey, body: object) -> list[tuple[int, str]]:
        assert isinstance(body, FindCoordinatorResponse)
        found = self._coordinators.on_response(key, body, self._metadata.response_count)
        return [(found.error_code, found.error_message or "")]

    def _on_failure(self, request: InFlightRequest, error: PyProducerError | None, now: float) -> None:
        """Schedule the request again, and record that it may have succeeded."""
        if isinstance(error, UnsupportedVersion):
            self._manager.fail(error)
            return
        self._coordinators.forget(request.key)
        if request.kind in (TxnRequest.COMMIT, TxnRequest.ABORT):
            self._manager.end_in_doubt = True
        elif request.kind in (
            TxnRequest.ADD_PARTITIONS,
            TxnRequest.ADD_OFFSETS,
            TxnRequest.COMMIT_OFFSETS,
        ):
            self._manager.contents.may_have_started = True
        self._pause(self._backoff(self._attempts), now)

    def _retry(self, request: InFlightRequest, code: int, action: ErrorAction, now: float) -> None:
        if action is ErrorAction.LOOK_UP:
            self._coordinators.forget(request.key)
        if code == Code.UNKNOWN_TOPIC_OR_PARTITION:  # a partition to be added may no longer exist
            self._metadata.request_update()
        begins = request.kind is TxnRequest.INIT or (
            request.kind is TxnRequest.ADD_PARTITIONS and not self._manager.contents.admitted
        )
        short = code == Code.CONCURRENT_TRANSACTIONS and begins and self._attempts < MAX_SHORT_PAUSES
        self._pause(SHORT_PAUSE if short else self._backoff(self._attempts), now)

    def _pause(self, seconds: float, now: float) -> None:
        self._not_before = now + seconds
        self._attempts += 1

    def _done(self, request: InFlightRequest, body: object, now: float) -> None:
        manager, about = self._manager, request.about
        if isinstance(body, InitProducerIdResponse):
            manager.on_initialized(
                ProducerIdAndEpoch(body.producer_id, body.producer_epoch), request.transaction_version, now
            )
        elif isinstance(body, AddPartitionsToTxnResponse):
            assert isinstance(about, frozenset)
            manager.on_partitions_added(about, now)
        elif isinstance(body, AddOffsetsToTxnResponse):
            assert isinstance(about, GroupOffsets)
            manager.contents.started = True
            manager.contents.groups.add(about.group.group_id)
        elif isinstance(body, TxnOffsetCommitResponse):
            assert isinstance(about, GroupOffsets)
            manager.on_offsets_committed(about)
        elif isinstance(body, EndTxnResponse):
            successor = ProducerIdAndEpoch(body.producer_id, body.producer_epoch) if body.producer_id >= 0 else None
            manager.on_end(successor, request.transaction_version, now)

    def _on_error(self, request: InFlightRequest, code: int, partition: str, action: ErrorAction, now: float) -> None:
        manager = self._manager
        subject = f"{request.api.name} of transactional id {manager.transactional_id!r}"
        if request.key.kind is KeyType.GROUP:
            subject += f", group {request.key.name!r}"
        if partition:
            subject += f", {partition}"
        advice = FENCED_ADVICE if action is ErrorAction.FENCED else ""
        if advice and code == Code.INVALID_PRODUCER_ID_MAPPING:
            advice = EXPIRED_ADVICE
        if advice and request.kind is TxnRequest.COMMIT and manager.end_in_doubt:
            advice += DOUBTFUL_ADVICE
        error = broker_error(code, subject, user=manager.settings.user, advice=advice)
        if action is ErrorAction.FENCED:
            manager.fail(ProducerFenced(str(error), code=error.code))
        elif action is ErrorAction.FATAL:
            manager.fail(error)
        elif action is ErrorAction.REFUSED:
            manager.on_init_rejected(error, now)
        else:
            if request.kind is TxnRequest.COMMIT:
                manager.contents.sealed = False  # it is not committed
            manager.mark_abortable(error, now)
            if request.kind is TxnRequest.FIND_COORDINATOR:  # the coordinator is still needed to end the transaction
                self._pause(self._backoff(self._attempts), now)


def _codes_in(body: object, about: frozenset[TopicPartition] | GroupOffsets | None) -> list[tuple[int, str]]:
    """Return the error codes of a response with their partitions. Requested partitions that it lacks have an error too."""
    if isinstance(body, AddPartitionsToTxnResponse):
        found = [
            (row.partition_error_code, topic.name, row.partition_index)
            for topic in body.results_by_topic_v3_and_below
            for row in topic.results_by_partition
        ]
    elif isinstance(body, TxnOffsetCommitResponse):
        found = [(row.error_code, topic.name, row.partition_index) for topic in body.topics for row in topic.partitions]
    else:
        return [(getattr(body, "error_code", 0), "")]
    wanted = set(about.offsets if isinstance(about, GroupOffsets) else about or ())
    found += [(Code.UNKNOWN_SERVER_ERROR, *tp) for tp in wanted - {(topic, number) for _, topic, number in found}]
    return [(code, f"topic {topic!r}, partition {number}") for code, topic, number in found] or [(0, "")]
