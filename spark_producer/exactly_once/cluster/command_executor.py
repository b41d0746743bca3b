"""Executes the commands of the protocol on a cluster: each with requests, which are retried until a deadline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from spark_producer.admin import BlockingClient
from spark_producer.admin.exchange import NodeRequest
from spark_producer.common.cluster import (
    TRANSACTIONS,
    ProducerIdAndEpoch,
    Span,
    TopicPartition,
    TransactionVersion,
    transaction_version_at,
)
from spark_producer.errors import ExactlyOnceError, IllegalState, PyProducerError
from spark_producer.exactly_once.cluster import (
    coordinator_state,
    end_transactions,
    fencing,
    last_commit,
    log_outcome,
    precommit_check,
    record_json,
)
from spark_producer.exactly_once.cluster.await_markers import LOST_AFTER_S, await_markers
from spark_producer.exactly_once.cluster.broker_requests import TransactionAdmin
from spark_producer.exactly_once.cluster.control_log import ControlLog, ControlLogState
from spark_producer.exactly_once.cluster.control_topic import (
    MIN_PART_BYTES,
    PARTITION,
    ControlTopic,
    check_settings,
    ensure,
    is_gone,
    settings_request,
)
from spark_producer.exactly_once.cluster.control_write import ControlWrite
from spark_producer.exactly_once.cluster.coordinator_state import ENDING, ONGOING, describe
from spark_producer.exactly_once.cluster.early_requests import MAX_AGE_S
from spark_producer.exactly_once.cluster.partition_state import TransactionSpan, ask_producers, still_open
from spark_producer.exactly_once.names import control_id
from spark_producer.exactly_once.protocol.commands import (
    Command,
    ControlWritten,
    DescribeControlId,
    Ended,
    EndTasks,
    Fence,
    Fenced,
    Found,
    ListOpen,
    LogOutcomes,
    MarkersLost,
    Missing,
    Opened,
    ReadControl,
    ReadLogs,
    Result,
    TasksEnded,
    Vote,
    Voted,
    WriteControl,
)
from spark_producer.exactly_once.protocol.control_record import UNFINISHED, ControlRecord, TaskTransaction
from spark_producer.exactly_once.protocol.outcomes import no_record
from spark_producer.exactly_once.protocol.task_messages import EncodedBatch
from spark_producer.protocol import API_VERSIONS, INIT_PRODUCER_ID, AnyApi
from spark_producer.protocol.messages import ApiVersionsRequest, ApiVersionsResponse

MAX_GUESSED = 32
"""Maximum number of partitions whose producers are asked for on the guess that the last control record names some of them."""

LAST_OFFSET = (1 << 63) - 1

SECONDS_PER_TRANSACTION = 0.02
"""Seconds by which the timeout grows for each transaction to end: a coordinator needs some 3 ms, one after the other."""

MAX_READS = 5
"""Number of reads of the control partition before it is read again from its start."""


class CommandExecutor:
    """One sink on one cluster. `perform` executes commands; what is known of the cluster is kept for the next write."""

    def __init__(self, client: BlockingClient, sink: str, topic: str) -> None:
        self.client = client
        self.sink = sink
        self.brokers = TransactionAdmin(client, sink)
        self.transaction_version = TransactionVersion.EXPLICIT
        """The cluster's transaction version, from `find_transaction_version` or from a write handle."""
        self.topic = topic
        self._log = ControlLog(self.brokers, topic)
        self._known: ControlTopic | None = None
        self._committed: set[TaskTransaction] = set()
        """The transactions of the last `EndTasks` that their coordinators have committed."""
        self._voted: set[TaskTransaction] = set()
        """The transactions of the last `Vote`, which had all of their rows."""
        self._voted_at = 0.0
        """The time of that `Vote`."""
        self._inline: Mapping[TopicPartition, Sequence[EncodedBatch]] = {}
        self._last_inline: tuple[TopicPartition, ...] = ()
        """The partitions with inline rows of the last control record that was read."""
        self._unseen: tuple[ProducerIdAndEpoch, list[TransactionSpan]] = ProducerIdAndEpoch(-1, -1), []
        """The producer id and epoch of the last control write, and its rows."""
        self._begun: ControlWrite | None = None
        """The write whose first requests are sent, before its command."""
        self._just_fenced = False
        """Whether only reads of the log followed the last fence, with which the coordinator names all brokers."""
        self.fenced: Fenced | None = None
        """The result of the last fence."""
        self._noted: tuple[int | None, ProducerIdAndEpoch] = None, ProducerIdAndEpoch(-1, -1)
        """The note of the sink's last commit, and a producer id and epoch that are newer than those of all commits."""
        self.written: tuple[Span, ...] = ()
        """The offsets of the inline rows that `WriteControl` has written last."""

    def prepare(self, *, make: bool = False) -> None:
        """Find the transaction version, and create or check the control topic. Both may change between writes.

        With `make` the topic is created even if the sink has committed writes in another one.

        Raises:
            ExactlyOnceError: the brokers have no transactions; the topic would lose control records; or it does not exist,
            although the sink has committed writes.
        """
        deadline = self.client.deadline()
        self.brokers.early.drop()
        if self._known is not None:
            coordinator_state.ask_states(self.brokers, [control_id(self.sink)])
            calls = [NodeRequest(None, *versions_request()), NodeRequest(None, *settings_request(self.topic))]
            versions, settings = self.client.request_all(calls, deadline)
            if not isinstance(versions, PyProducerError) and not isinstance(settings, PyProducerError):
                self.transaction_version = transaction_version_of(versions)
                if not is_gone(settings):
                    self._known = check_settings(self.topic, settings)
                    return
        self.brokers.early.drop()
        self.transaction_version = find_transaction_version(self.client, deadline)
        self._known = ensure(self.brokers, self.topic, deadline, (lambda: None) if make else self._refuse_to_forget)

    def _refuse_to_forget(self) -> None:
        own = control_id(self.sink)
        if last_commit.noted_commit(describe(self.brokers, [own], self.client.deadline())[own]) is not None:
            failed = no_record(self.sink, self.topic)
            raise ExactlyOnceError(failed.text, kind=failed.kind.name)

    def take_inline(self, batches: Iterable[EncodedBatch]) -> None:
        """Store the rows that the next `WriteControl` with `inline` writes. Those of one partition keep their order."""
        found: dict[TopicPartition, list[EncodedBatch]] = {}
        for each in batches:
            found.setdefault(TopicPartition(each.topic, each.partition), []).append(each)
        self._inline = found
        self.written = ()

    def drop_inline(self) -> None:
        """Drop the rows; `written` stays. Abort a transaction that was begun with them, and not continued after an error.

        With transactions of tasks ABORT follows, whose fence does that.
        """
        self._inline = {}
        self.brokers.early.drop()
        begun, self._begun = self._begun, None
        if begun is not None and not begun.command.record.transactions:
            begun.cancel()

    def perform(self, command: Command, seconds: float | None = None) -> Result:
        """Execute a command and return its result, within the timeout of the client, or of `seconds` if that is less.

        Raises:
            KafkaTimeout, BrokersUnreachable: the command was not executed in time; the message says what it waited for.
            BrokerError: the brokers refuse; for a missing right the message has the command that grants it.
            ExactlyOnceError: the control record cannot be read.
        """
        deadline = self.client.deadline()
        if seconds is not None:
            deadline = min(deadline, self.client.clock() + seconds)
        if self._begun is None and not isinstance(command, Fence | ReadControl | ListOpen | ReadLogs):
            self.brokers.early.drop()
        fenced = self._just_fenced
        self._just_fenced = isinstance(command, Fence) or (fenced and isinstance(command, ReadControl))
        match command:
            case Fence():
                self.fenced = fencing.fence(self.brokers, self.topic, deadline, self._ask_after_fence)
                self._noted = self.fenced.noted_commit, self.fenced.fencing
                return self.fenced
            case DescribeControlId():
                holder = fencing.holder(self.brokers, self.topic, deadline)
                if holder.fencing is not None:
                    self._noted = holder.noted_commit, holder.fencing._replace(epoch=holder.fencing.epoch + 1)
                return holder
            case ReadControl():
                response = self._read(deadline)
                if isinstance(response, Found):
                    self._last_inline = () if response.record is None else response.record.inline
                lacks = isinstance(response, Found) and self._is_missing(response)
                return Missing(self.topic, response.record) if lacks else response
            case ListOpen(excluding, following):
                if following is not None:
                    self._begin(following)
                    deadline = min(self.client.deadline(), self.client.clock() + (seconds or self.client.timeout))
                ids = {each.transactional_id for each in excluding}
                return Opened(
                    coordinator_state.open_tasks(
                        self.brokers, self.transaction_version, deadline, ids, nodes_known=fenced
                    )
                )
            case WriteControl():
                return self._write(command, deadline)
            case Vote(transactions, held):
                self._voted_at = self.client.clock()
                found = precommit_check.objections(self.brokers, transactions, deadline)
                self._voted = set(transactions)
                return Voted(found, bool(found) and fencing.is_overtaken(self.brokers, held, deadline))
            case EndTasks(transactions, commit):
                more = SECONDS_PER_TRANSACTION * len(transactions)
                results = end_transactions.end_tasks(self.brokers, transactions, commit, deadline + more)
                by_transaction = zip(transactions, results, strict=True)
                self._committed = {one for one, result in by_transaction if commit and isinstance(result, Ended)}
                return TasksEnded(results)
            case ReadLogs(transactions, written):
                return self._read_logs(transactions, written, deadline)
        raise IllegalState(f"{type(command).__name__} is not a command: a bug in pyproducer")

    def _ask_after_fence(self) -> None:
        """Send early the requests that follow a fence: for the control records, their markers, and the open transactions of
        tasks.

        The partitions of the last record are not known before it is read. The guess is those of the record before, and the other
        partitions of their topics if they are few; a wrong guess costs a round trip.
        """
        self.brokers.early.drop()
        self._log.ask()
        if self._last_inline:
            coordinator_state.ask_states(self.brokers, [control_id(self.sink)])
            topics = {tp.topic for tp in self._last_inline}
            several = [tp for topic in sorted(topics) for tp in self.brokers.partitions_of(topic)]
            ask_producers(self.brokers, several if len(several) <= MAX_GUESSED else self._last_inline)
        coordinator_state.ask_open_tasks(self.brokers, nodes_known=True)

    def _begin(self, command: WriteControl) -> None:
        """Send the first requests of a write, and of the vote before it, together with the listing of open transactions.

        Wait for the responses to those of the write: the requests of the listing have shorter timeouts, and a timeout closes its
        connection, with all other requests in flight there.

        A write whose vote may have to wait for brokers is not begun: its transaction would time out meanwhile.
        """
        self.brokers.early.drop()
        coordinator_state.ask_open_tasks(self.brokers)
        if not precommit_check.ask(self.brokers, command.record.transactions):
            return
        deadline = self.client.deadline()
        write = ControlWrite(self.brokers, self.topic, self.transaction_version, command, deadline)
        with suppress(PyProducerError):  # the write itself raises it again
            write.begin(self._inline if command.inline else {}, self._max_part_bytes(command.record, deadline))
            self._begun = write
            write.wait()

    def _write(self, command: WriteControl, deadline: float) -> Result:
        inline = self._inline if command.inline else {}
        if set(inline) != set(command.record.inline if command.inline else ()):
            raise IllegalState("the rows to write are not in the partitions that the control record names")
        write, self._begun = self._begun, None
        if write is None or write.command != command:
            write = ControlWrite(self.brokers, self.topic, self.transaction_version, command, deadline)
        response = write.run(inline, self._max_part_bytes(command.record, deadline), deadline)
        if not isinstance(response, ControlWritten):
            self.brokers.early.drop()
        self._unseen = command.fencing, write.spans
        if inline:
            counts = {tp: sum(batch.records for batch in batches) for tp, batches in inline.items()}
            spans = [each for each in write.spans if each.topic_partition in counts]
            self.written = tuple(Span(*each[1:], counts[each.topic_partition]) for each in spans)
        return response

    def _read_logs(
        self, transactions: tuple[TaskTransaction, ...], written: ProducerIdAndEpoch | None, deadline: float
    ) -> LogOutcomes:
        ended = self._committed.intersection(transactions)
        is_recent = self.client.clock() - self._voted_at <= MAX_AGE_S
        control: dict[str, list[TransactionSpan]] = {}
        if written is not None:
            if self._unseen[0] != written:
                raise IllegalState("the rows of the control record's transaction are unknown: a bug in pyproducer")
            control[control_id(self.sink)] = self._unseen[1]
        return log_outcome.read_outcomes(
            self.brokers,
            transactions,
            ended,
            deadline,
            rows_seen=is_recent and ended <= self._voted,
            control=control,
            without_tasks={TopicPartition(self.topic, PARTITION)} if control else (),
        )

    def _max_part_bytes(self, record: ControlRecord, deadline: float) -> int:
        """Return the maximum bytes of a part of `record`. An unknown topic is checked only for a long record."""
        if self._known is None and len(record_json.encode(record, MIN_PART_BYTES, (0, 0))) > 1:
            self._known = ensure(self.brokers, self.topic, deadline)
        return MIN_PART_BYTES if self._known is None else self._known.max_part_bytes

    def _read(self, deadline: float) -> Found | MarkersLost:
        own = control_id(self.sink)
        clock = self.brokers.client.clock
        missing_since, reads = clock(), 0
        for _ in self.brokers.attempts(deadline, f"the end of the last write of {own!r}"):
            seen = self._log.read(deadline)
            if not self._precedes_fence(seen):
                self.brokers.early.drop()
            if not seen.undecided and not (seen.record and seen.record.inline):
                return Found(seen.record)
            state = describe(self.brokers, [own], deadline)[own]
            if state is not None and state.transaction_state in ENDING:
                missing_since = clock()
                continue
            if (
                state is not None
                and state.transaction_state == ONGOING
                and all(one[:2] == (state.producer_id, state.producer_epoch) for one in seen.undecided)
            ):  # a newer driver is writing, and has checked the earlier records
                return Found(seen.record)
            if not seen.undecided:
                return self._with_inline(seen, own, deadline)
            if clock() - missing_since >= LOST_AFTER_S and self._lacks_marker(seen, deadline):
                return MarkersLost((TopicPartition(self.topic, PARTITION),))
            reads += 1
            if reads == MAX_READS:
                # after a day without reads compaction may have removed the marker together with its rows
                self._log.forget()
        raise AssertionError

    def _precedes_fence(self, seen: ControlLogState) -> bool:
        """Return whether all records are older than the last fence, which then has waited for all of their markers.

        Only then may leaders be asked for them before the last record is read.
        """
        if self.fenced is None or seen.undecided:
            return False
        if seen.record is None:
            return True
        producer_id, epoch = self.fenced.fencing
        return seen.producer_id == producer_id and seen.end_epoch < epoch

    def _is_missing(self, found: Found) -> bool:
        """Return whether the topic lacks the commit that the coordinator has noted."""
        noted, newest = self._noted
        last = None if found.record is None else self._log.last_end
        return last_commit.is_missing(noted, newest, last)

    def _lacks_marker(self, seen: ControlLogState, deadline: float) -> bool:
        """Return whether the leader itself lacks the marker. One that is not replicated yet is not served, but will be."""
        spans = [
            TransactionSpan(producer_id, self.topic, PARTITION, first, last)
            for producer_id, _, first, last in seen.undecided
        ]
        return any(still_open(self.brokers, spans, deadline))

    def _with_inline(self, seen: ControlLogState, own: str, deadline: float) -> Found | MarkersLost:
        """Return the record once the partitions of its inline rows have the marker. If it is done, dead tasks count too."""
        inline = seen.record.inline if seen.record is not None else ()
        left_out = inline if seen.record is not None and seen.record.status in UNFINISHED else ()
        spans = [TransactionSpan(seen.producer_id, topic, partition, 0, LAST_OFFSET) for topic, partition in inline]
        lost = await_markers(self.brokers, {own: spans}, deadline, markers_written=True, without_tasks=left_out)
        return MarkersLost(lost, seen.record) if lost else Found(seen.record)


def find_transaction_version(client: BlockingClient, deadline: float) -> TransactionVersion:
    """Return the cluster's transaction version, by its finalized features (`transaction_version_at`).

    Raises:
        ExactlyOnceError: the brokers have no transactions.
    """
    return transaction_version_of(client.request(*versions_request(), deadline=deadline))


def versions_request() -> tuple[AnyApi, ApiVersionsRequest]:
    """Return the ApiVersions request, for the APIs of a broker and the finalized features of the cluster."""
    return API_VERSIONS, ApiVersionsRequest("pyproducer", "1")


def transaction_version_of(response: ApiVersionsResponse) -> TransactionVersion:
    """Return the transaction version of a cluster, from an ApiVersions response.

    Raises: as `find_transaction_version`.
    """
    offered = {row.api_key: row for row in response.api_keys}
    needed = {
        INIT_PRODUCER_ID.key: "InitProducerId",
        65: "DescribeTransactions",
        66: "ListTransactions",
        61: "DescribeProducers",
    }
    lacking = [name for key, name in needed.items() if key not in offered]
    if lacking:
        raise ExactlyOnceError(
            f"exactly-once writes need Kafka 3.0 or newer: these brokers do not support {', '.join(lacking)}. Without "
            "exactlyOnceId rows are written at least once"
        )
    agreed = {row.name: row.max_version_level for row in response.finalized_features}
    return transaction_version_at(agreed.get(TRANSACTIONS, 0))
