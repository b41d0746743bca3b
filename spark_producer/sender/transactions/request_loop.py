"""The dialog of a transactional producer with its coordinators: one request at a time, the most important first.

Only the I/O thread calls this module. `transactions` says what is needed, `transaction_requests` makes the messages, and
`transaction_verdicts` says what an error code means.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from spark_producer.accumulator import ProducerIdAndEpoch
from spark_producer.common.cluster import TRANSACTIONS, Style, TopicPartition, style_at
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
"""Seconds before a new transaction is asked for again while the coordinator still writes the markers of the last one, which takes
some milliseconds (Kafka: ADD_PARTITIONS_RETRY_BACKOFF_MS)."""

MAX_SHORT_PAUSES = 50
"""After so many of them, a second, the markers are held up by a leader that is gone, and the usual pauses follow."""

FENCED_ADVICE = (
    "a newer producer with the same transactional id took over, or the transaction took longer than transaction.timeout.ms; "
    "close this producer, and write the rows again with a new one if it is the one to go on"
)

EXPIRED_ADVICE = (
    "the brokers have forgotten the transactional id, idle for longer than their transactional.id.expiration.ms (7 days by "
    "default), and perhaps a newer producer took it over, or the transaction took longer than transaction.timeout.ms; close this "
    "producer, and write the rows again with a new one. Where producers idle for so long, raise that setting of the brokers"
)
"""Of INVALID_PRODUCER_ID_MAPPING: a producer that is overtaken keeps its producer id, but for the end of its epochs."""

DOUBTFUL_ADVICE = (
    "; but read first what is there, since an earlier request to commit got no answer, and may have been obeyed"
)

_WORSE_FIRST = (
    ErrorAction.FENCED, ErrorAction.FATAL, ErrorAction.REFUSED, ErrorAction.LOOK_UP, ErrorAction.RETRY, ErrorAction.ABORTABLE,
    ErrorAction.DONE,
)  # fmt: skip
"""If partitions of one answer differ, the first of these counts. What may be sent again is, and then the others are told anew."""


class InFlightRequest(NamedTuple):
    """The request in flight. `key` is whose coordinator it is for, or about; `about` its places, or its offsets."""

    need: TxnRequest
    api: AnyApi
    key: CoordinatorKey
    style: Style
    about: frozenset[TopicPartition] | GroupOffsets | None = None


class TransactionRequestLoop:
    """Sends what a transaction needs to its coordinators, and takes in what they answer."""

    def __init__(self, manager: TransactionManager, metadata: Metadata, backoff: Callable[[int], float]) -> None:
        self._manager = manager
        self._metadata = metadata
        self._backoff = backoff
        self._coordinators = Coordinators()
        self._asked: InFlightRequest | None = None
        self._not_before = 0.0
        self._attempts = 0

    def step(self, now: float) -> None:
        """Take in the calls, and see that the node to ask is known."""
        self._manager.step(now)
        need = self._manager.need()
        if need is not None and self._asked is None:
            key, nodes = self._key(need), self._metadata.cluster.nodes
            if nodes and self._coordinators.has_left(key, nodes, self._metadata.response_count):
                self._coordinators.forget(key)
                self._pause(self._backoff(self._attempts), now)  # brokers may not agree yet on who is there
            node = self._coordinators.node_of(key)
            if not nodes or (node is not None and node not in nodes):
                self._metadata.request_nodes()

    def asked(self, api: AnyApi) -> bool:
        """Return whether an answer of this API is for this module."""
        return api.key in requests.APIS

    def disconnected(self, node: int) -> None:
        """Have coordinators on a node that went away looked up again."""
        self._coordinators.disconnected(node)

    # --- questions --------------------------------------------------------------------------------------------------

    def questions(self, now: float, network: NetworkView, times: list[float | None]) -> list[ClientRequest]:
        """Return the request that is due, at most one. Add to `times` when to look again."""
        need = None if self._asked is not None else self._manager.need()
        if need is None or not self._metadata.cluster.nodes:
            return []
        if self._not_before > now:
            times.append(self._not_before)
            return []
        key = self._key(need)
        known = self._coordinators.node_of(key)
        node = network.least_loaded() if known is None else known
        lost = known is not None and known not in self._metadata.cluster.nodes
        if node is None or lost or not network.ready(node):
            times.append(now + self._wait_for(node, known, key, network))
            return []
        style = style_at(network.finalized_level(TRANSACTIONS))
        if known is None:
            self._asked = InFlightRequest(TxnRequest.FIND_COORDINATOR, FIND_COORDINATOR, key, style)
            sent = requests.ApiRequest(FIND_COORDINATOR, find_coordinator_request(key))
        else:
            sent = self._ask(need, key, style, now)
        self._manager.busy = True
        return [ClientRequest(node, sent.api, sent.body, ())]

    def _wait_for(self, node: int | None, known: int | None, key: CoordinatorKey, network: NetworkView) -> float:
        """Return the seconds until a node that takes no request now is looked at again."""
        pause = network.next_attempt_in(node) if node is not None else 0.0
        if pause and known is not None:  # its connection has failed: another one may coordinate by now
            self._coordinators.forget(key)
        return pause or NODE_RECHECK

    def _key(self, need: TxnRequest) -> CoordinatorKey:
        if need is TxnRequest.COMMIT_OFFSETS:
            return CoordinatorKey(KeyType.GROUP, self._manager.next_offsets().group.group_id)
        return CoordinatorKey(KeyType.TRANSACTION, self._manager.transactional_id)

    def _ask(self, need: TxnRequest, key: CoordinatorKey, style: Style, now: float) -> requests.ApiRequest:
        """Return the request that is needed, and remember it as the one in flight."""
        manager = self._manager
        name, timeout_ms = manager.transactional_id, manager.settings.transaction_timeout_ms
        identity, contents = manager.identity, manager.contents
        about: frozenset[TopicPartition] | GroupOffsets | None = None
        if need is TxnRequest.INIT:
            sent = requests.init(name, timeout_ms)
        elif need is TxnRequest.RAISE_EPOCH:
            sent = requests.init(name, timeout_ms, identity)
        elif need is TxnRequest.ADD_PARTITIONS:
            contents.begins(now)
            about = frozenset(contents.waiting)
            sent = requests.add_partitions(name, identity, contents.waiting)
        elif need is TxnRequest.ADD_OFFSETS:
            contents.begins(now)
            about = manager.next_offsets()
            sent = requests.add_offsets(name, identity, about.group.group_id)
        elif need is TxnRequest.COMMIT_OFFSETS:
            contents.begins(now)
            about = manager.next_offsets()
            sent = requests.commit_offsets(name, identity, about, manager.style)
        else:
            if need is TxnRequest.COMMIT:
                manager.seal(now)
            sent = requests.end(name, identity, manager.style, commit=need is TxnRequest.COMMIT)
        self._asked = InFlightRequest(need, sent.api, key, style, about)
        return sent

    # --- answers ----------------------------------------------------------------------------------------------------

    def answered(self, body: object, error: PyProducerError | None, now: float) -> None:
        """Take in the answer to the request in flight, or the reason why there is none."""
        asked, self._asked = self._asked, None
        self._manager.busy = False
        if asked is None:
            return
        if body is None:
            self._unanswered(asked, error, now)
            return
        looks_up = asked.need is TxnRequest.FIND_COORDINATOR
        codes = self._coordinator_told(asked.key, body) if looks_up else _codes_in(body, asked.about)
        code, tp = min(codes, key=lambda found: self._weight(asked, found[0]))
        verdict = self._judge(asked, code)
        if verdict is ErrorAction.DONE:
            self._attempts, self._not_before = 0, 0.0
            self._done(asked, body, now)
        elif verdict is ErrorAction.RETRY or verdict is ErrorAction.LOOK_UP:
            self._again(asked, code, verdict, now)
        else:
            self._refused(asked, code, tp, verdict, now)

    def _weight(self, asked: InFlightRequest, code: int) -> tuple[int, bool]:
        """Return the place of a code among those of one answer; the least one counts. 55 only says that another is to blame."""
        return _WORSE_FIRST.index(self._judge(asked, code)), code == Code.OPERATION_NOT_ATTEMPTED

    def _judge(self, asked: InFlightRequest, code: int) -> ErrorAction:
        contents = self._manager.contents
        if asked.need is TxnRequest.ABORT and code == Code.INVALID_TXN_STATE and not contents.started:
            return ErrorAction.DONE  # the request that might have begun it never arrived
        looks_up_to_init = asked.need is TxnRequest.FIND_COORDINATOR and self._manager.need() is TxnRequest.INIT
        return action_for(TxnRequest.INIT if looks_up_to_init else asked.need, code)

    def _coordinator_told(self, key: CoordinatorKey, body: object) -> list[tuple[int, str]]:
        assert isinstance(body, FindCoordinatorResponse)
        told = self._coordinators.found(key, body, self._metadata.response_count)
        return [(told.error_code, told.error_message or "")]

    def _unanswered(self, asked: InFlightRequest, error: PyProducerError | None, now: float) -> None:
        """Ask again, and remember what may have been done for all that."""
        if isinstance(error, UnsupportedVersion):
            self._manager.fail(error)
            return
        self._coordinators.forget(asked.key)
        if asked.need in (TxnRequest.COMMIT, TxnRequest.ABORT):
            self._manager.end_in_doubt = True
        elif asked.need in (
            TxnRequest.ADD_PARTITIONS,
            TxnRequest.ADD_OFFSETS,
            TxnRequest.COMMIT_OFFSETS,
        ):
            self._manager.contents.may_have_started = True
        self._pause(self._backoff(self._attempts), now)

    def _again(self, asked: InFlightRequest, code: int, verdict: ErrorAction, now: float) -> None:
        if verdict is ErrorAction.LOOK_UP:
            self._coordinators.forget(asked.key)
        if code == Code.UNKNOWN_TOPIC_OR_PARTITION:  # of a partition that is to be added, which may not exist any more
            self._metadata.request_update()
        begins = asked.need is TxnRequest.INIT or (
            asked.need is TxnRequest.ADD_PARTITIONS and not self._manager.contents.admitted
        )
        short = code == Code.CONCURRENT_TRANSACTIONS and begins and self._attempts < MAX_SHORT_PAUSES
        self._pause(SHORT_PAUSE if short else self._backoff(self._attempts), now)

    def _pause(self, seconds: float, now: float) -> None:
        self._not_before = now + seconds
        self._attempts += 1

    def _done(self, asked: InFlightRequest, body: object, now: float) -> None:
        manager, about = self._manager, asked.about
        if isinstance(body, InitProducerIdResponse):
            manager.initialized(ProducerIdAndEpoch(body.producer_id, body.producer_epoch), asked.style, now)
        elif isinstance(body, AddPartitionsToTxnResponse):
            assert isinstance(about, frozenset)
            manager.partitions_added(about, now)
        elif isinstance(body, AddOffsetsToTxnResponse):
            assert isinstance(about, GroupOffsets)
            manager.contents.started = True
            manager.contents.groups.add(about.group.group_id)
        elif isinstance(body, TxnOffsetCommitResponse):
            assert isinstance(about, GroupOffsets)
            manager.offsets_committed(about)
        elif isinstance(body, EndTxnResponse):
            given = ProducerIdAndEpoch(body.producer_id, body.producer_epoch) if body.producer_id >= 0 else None
            manager.ended(given, asked.style, now)

    def _refused(self, asked: InFlightRequest, code: int, tp: str, verdict: ErrorAction, now: float) -> None:
        manager = self._manager
        subject = f"{asked.api.name} of transactional id {manager.transactional_id!r}"
        if asked.key.kind is KeyType.GROUP:
            subject += f", group {asked.key.name!r}"
        if tp:
            subject += f", {tp}"
        advice = FENCED_ADVICE if verdict is ErrorAction.FENCED else ""
        if advice and code == Code.INVALID_PRODUCER_ID_MAPPING:
            advice = EXPIRED_ADVICE
        if advice and asked.need is TxnRequest.COMMIT and manager.end_in_doubt:
            advice += DOUBTFUL_ADVICE
        error = broker_error(code, subject, user=manager.settings.user, advice=advice)
        if verdict is ErrorAction.FENCED:
            manager.fail(ProducerFenced(str(error), code=error.code))
        elif verdict is ErrorAction.FATAL:
            manager.fail(error)
        elif verdict is ErrorAction.REFUSED:
            manager.refused(error, now)
        else:
            if asked.need is TxnRequest.COMMIT:
                manager.contents.sealed = False  # it is not committed
            manager.mark_abortable(error, now)
            if asked.need is TxnRequest.FIND_COORDINATOR:  # to end a transaction it is needed all the same
                self._pause(self._backoff(self._attempts), now)


def _codes_in(body: object, about: frozenset[TopicPartition] | GroupOffsets | None) -> list[tuple[int, str]]:
    """Return every error code of an answer, with the partition that it is about. Of none that was asked for may it be silent."""
    if isinstance(body, AddPartitionsToTxnResponse):
        told = [
            (row.partition_error_code, topic.name, row.partition_index)
            for topic in body.results_by_topic_v3_and_below
            for row in topic.results_by_partition
        ]
    elif isinstance(body, TxnOffsetCommitResponse):
        told = [(row.error_code, topic.name, row.partition_index) for topic in body.topics for row in topic.partitions]
    else:
        return [(getattr(body, "error_code", 0), "")]
    wanted = set(about.offsets if isinstance(about, GroupOffsets) else about or ())
    told += [(Code.UNKNOWN_SERVER_ERROR, *tp) for tp in wanted - {(topic, number) for _, topic, number in told}]
    return [(code, f"topic {topic!r}, partition {number}") for code, topic, number in told] or [(0, "")]
