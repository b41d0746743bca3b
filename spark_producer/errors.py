"""Every exception of the package, and the table of the broker's error codes.

Owns: the exception tree (one root, all of it picklable, since exceptions cross Spark's processes) and
`ERROR_CODES`, the one table that says what each Kafka error code means to a producer.
Must not know: anything else of this package.

Every message says what happened, to what, and what to do. No message ever holds a secret.
"""

from __future__ import annotations

import enum
from typing import NamedTuple


class PyProducerError(Exception):
    """Root of all errors of this package.

    `message` is the whole text; `details` become attributes and survive pickling (BaseException keeps `__dict__`).
    """

    def __init__(self, message: str, **details: object) -> None:
        super().__init__(message)
        self.__dict__.update(details)


class ConfigError(PyProducerError):
    """An option is unknown, has a bad value, or contradicts another one."""


class SchemaError(PyProducerError):
    """A column is missing, unknown, or has a type that cannot be written."""


class RecordError(PyProducerError):
    """A row cannot be written: null topic, bad partition, null header key, bad timestamp."""


class RecordTooLarge(RecordError):
    """A row is larger than `max.request.size` or `buffer.memory` allow."""


class RecordBatchError(PyProducerError):
    """A record batch cannot be built as asked: its fields contradict each other, or it takes no more records."""


class PartitionerError(PyProducerError):
    """A custom partitioner raised, or returned what is not one partition of the topic per row."""


class CorruptRecord(PyProducerError):
    """Bytes that should be record batches are not: bad CRC, bad magic, bad length."""


class ProtocolError(PyProducerError):
    """Bytes do not follow the Kafka protocol."""


class LocalProtocolError(ProtocolError):
    """We tried to send what the protocol does not allow."""


class RemoteProtocolError(ProtocolError):
    """The peer sent what the protocol does not allow: truncated, oversized, garbage, or unasked-for."""


class UnsupportedVersion(ProtocolError):
    """Client and broker have no version of an API in common."""


class ConnectionFailed(PyProducerError):
    """A connection could not be made, or broke (every OSError of a socket becomes this one)."""


class KafkaTimeout(PyProducerError):
    """A wait reached its deadline."""


class BrokersUnreachable(KafkaTimeout):
    """None of the bootstrap servers answered in time."""


class MetadataTimeout(KafkaTimeout):
    """A topic or partition did not become known within `max.block.ms`."""


class BufferExhausted(KafkaTimeout):
    """The buffer pool had no memory within `max.block.ms`."""


class DeliveryTimeout(KafkaTimeout):
    """A batch was not acknowledged within `delivery.timeout.ms` of its creation."""


class ProducerClosed(PyProducerError):
    """The producer was closed while, or before, it was used."""


class IllegalState(PyProducerError):
    """Something was done twice, or in an order that makes no sense: a defect of the caller."""


class CommitError(PyProducerError):
    """The driver cannot accept what the tasks report."""


class BrokerError(PyProducerError):
    """The broker refused a request; `code` is its error code, see `ERROR_CODES`."""

    code: int


class RecordsRefused(BrokerError):
    """The broker refused a batch for single records of it (KIP-467).

    `records`: the broker's complaint for each refused record, by its index in the batch; `rows`, where the records came
    from a table: the same by row of the table.
    """

    records: dict[int, str]
    rows: dict[int, str]


class TopicNotFound(BrokerError):
    """A topic does not exist (and is not created automatically)."""


class Action(enum.Flag):
    """What a producer does about an error code (spec: kafka_producer.md §2.12)."""

    NONE = 0
    RETRY = enum.auto()
    REFRESH_METADATA = enum.auto()
    SPLIT = enum.auto()
    SUCCESS = enum.auto()
    FATAL = enum.auto()


class Persisted(enum.Enum):
    """Whether the records of a request answered with this code are in the log."""

    NO = "no"
    POSSIBLY = "possibly"
    YES = "yes"


class ErrorCode(NamedTuple):
    """One row of the table: the code, Kafka's name for it, what to do, whether records persist, advice for people."""

    code: int
    name: str
    action: Action
    persisted: Persisted
    advice: str


_NONE, _RETRY, _REFRESH = Action.NONE, Action.RETRY, Action.RETRY | Action.REFRESH_METADATA
_FATAL = Action.FATAL
_NO, _POSSIBLY, _YES = Persisted.NO, Persisted.POSSIBLY, Persisted.YES

_TABLE = (
    ErrorCode(-1, "UNKNOWN_SERVER_ERROR", _NONE, _POSSIBLY, "look into the broker's log"),
    ErrorCode(0, "NONE", _NONE, _YES, ""),
    ErrorCode(1, "OFFSET_OUT_OF_RANGE", _NONE, _NO, "ask for an offset that the log still holds"),
    ErrorCode(2, "CORRUPT_MESSAGE", _RETRY, _NO, "bytes were damaged on the way; check the network"),
    ErrorCode(3, "UNKNOWN_TOPIC_OR_PARTITION", _REFRESH, _NO, "create the topic, or correct its name"),
    ErrorCode(5, "LEADER_NOT_AVAILABLE", _REFRESH, _NO, "wait for the election, or look why no replica is alive"),
    ErrorCode(6, "NOT_LEADER_OR_FOLLOWER", _REFRESH, _NO, "the leader moved; retried by itself"),
    ErrorCode(7, "REQUEST_TIMED_OUT", _RETRY, _POSSIBLY, "replicas are slow; see request.timeout.ms"),
    ErrorCode(8, "BROKER_NOT_AVAILABLE", _NONE, _NO, "start the broker"),
    ErrorCode(9, "REPLICA_NOT_AVAILABLE", _REFRESH, _NO, "wait for the replica"),
    ErrorCode(
        10, "MESSAGE_TOO_LARGE", Action.SPLIT, _NO, "raise the topic's max.message.bytes, or make the row smaller"
    ),
    ErrorCode(13, "NETWORK_EXCEPTION", _REFRESH, _POSSIBLY, "the connection broke; check the network and the broker"),
    ErrorCode(14, "COORDINATOR_LOAD_IN_PROGRESS", _RETRY, _NO, "wait for the coordinator"),
    ErrorCode(15, "COORDINATOR_NOT_AVAILABLE", _RETRY, _NO, "wait for the coordinator"),
    ErrorCode(16, "NOT_COORDINATOR", _RETRY, _NO, "the coordinator moved; retried by itself"),
    ErrorCode(17, "INVALID_TOPIC_EXCEPTION", _NONE, _NO, "use a legal topic name: letters, digits, '.', '_' and '-'"),
    ErrorCode(18, "RECORD_LIST_TOO_LARGE", _NONE, _NO, "lower batch.size"),
    ErrorCode(19, "NOT_ENOUGH_REPLICAS", _RETRY, _NO, "fewer replicas in sync than min.insync.replicas"),
    ErrorCode(20, "NOT_ENOUGH_REPLICAS_AFTER_APPEND", _RETRY, _POSSIBLY, "replicas fell behind min.insync.replicas"),
    ErrorCode(21, "INVALID_REQUIRED_ACKS", _NONE, _NO, "acks is one of all, -1, 1, 0"),
    ErrorCode(29, "TOPIC_AUTHORIZATION_FAILED", _NONE, _NO, "grant WRITE on the topic to this user"),
    ErrorCode(31, "CLUSTER_AUTHORIZATION_FAILED", _FATAL, _NO, "grant IDEMPOTENT_WRITE on the cluster to this user"),
    ErrorCode(32, "INVALID_TIMESTAMP", _NONE, _NO, "the timestamp is outside what the topic accepts"),
    ErrorCode(33, "UNSUPPORTED_SASL_MECHANISM", _FATAL, _NO, "use a mechanism that the broker enables"),
    ErrorCode(34, "ILLEGAL_SASL_STATE", _FATAL, _NO, "check security.protocol on both sides"),
    ErrorCode(35, "UNSUPPORTED_VERSION", _FATAL, _NO, "the broker does not speak this version of the request"),
    ErrorCode(36, "TOPIC_ALREADY_EXISTS", _NONE, _NO, "the topic is already there"),
    ErrorCode(37, "INVALID_PARTITIONS", _NONE, _NO, "a topic has at least one partition"),
    ErrorCode(38, "INVALID_REPLICATION_FACTOR", _NONE, _NO, "the replication factor exceeds the number of brokers"),
    ErrorCode(39, "INVALID_REPLICA_ASSIGNMENT", _NONE, _NO, "correct the replica assignment"),
    ErrorCode(40, "INVALID_CONFIG", _NONE, _NO, "correct the topic's configuration"),
    ErrorCode(41, "NOT_CONTROLLER", _RETRY, _NO, "the controller moved; ask again"),
    ErrorCode(42, "INVALID_REQUEST", _NONE, _NO, "the request contradicts itself"),
    ErrorCode(43, "UNSUPPORTED_FOR_MESSAGE_FORMAT", _NONE, _NO, "the topic's message format is too old"),
    ErrorCode(44, "POLICY_VIOLATION", _NONE, _NO, "the broker's policy forbids it"),
    ErrorCode(45, "OUT_OF_ORDER_SEQUENCE_NUMBER", _RETRY, _NO, "an earlier batch is missing; retried in order"),
    ErrorCode(46, "DUPLICATE_SEQUENCE_NUMBER", Action.SUCCESS, _YES, "the batch was already written"),
    ErrorCode(47, "INVALID_PRODUCER_EPOCH", _NONE, _NO, "a newer producer took over"),
    ErrorCode(48, "INVALID_TXN_STATE", _NONE, _NO, "the transaction is not in a state for this"),
    ErrorCode(49, "INVALID_PRODUCER_ID_MAPPING", _FATAL, _NO, "the producer id is not that of the transactional id"),
    ErrorCode(51, "CONCURRENT_TRANSACTIONS", _RETRY, _NO, "wait for the other transaction"),
    ErrorCode(53, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", _FATAL, _NO, "grant WRITE on the transactional id"),
    ErrorCode(54, "SECURITY_DISABLED", _FATAL, _NO, "security features are off on the broker"),
    ErrorCode(56, "KAFKA_STORAGE_ERROR", _REFRESH, _POSSIBLY, "the broker's disk failed; look into its log"),
    ErrorCode(58, "SASL_AUTHENTICATION_FAILED", _FATAL, _NO, "check user name and password"),
    ErrorCode(59, "UNKNOWN_PRODUCER_ID", _NONE, _NO, "the broker forgot this producer; write again"),
    ErrorCode(60, "REASSIGNMENT_IN_PROGRESS", _NONE, _NO, "wait for the reassignment"),
    ErrorCode(70, "FETCH_SESSION_ID_NOT_FOUND", _RETRY, _NO, "fetch without a session, or open a new one"),
    ErrorCode(72, "LISTENER_NOT_FOUND", _REFRESH, _NO, "the leader has no listener of this name"),
    ErrorCode(73, "TOPIC_DELETION_DISABLED", _NONE, _NO, "set delete.topic.enable on the broker"),
    ErrorCode(74, "FENCED_LEADER_EPOCH", _REFRESH, _NO, "the leader moved; retried by itself"),
    ErrorCode(75, "UNKNOWN_LEADER_EPOCH", _RETRY, _NO, "the broker's metadata is older than ours; retried"),
    ErrorCode(76, "UNSUPPORTED_COMPRESSION_TYPE", _NONE, _NO, "the broker does not know this codec"),
    ErrorCode(78, "OFFSET_NOT_AVAILABLE", _RETRY, _NO, "the new leader is catching up"),
    ErrorCode(80, "PREFERRED_LEADER_NOT_AVAILABLE", _REFRESH, _NO, "wait for the election"),
    ErrorCode(83, "ELIGIBLE_LEADERS_NOT_AVAILABLE", _REFRESH, _NO, "wait for a replica that may lead"),
    ErrorCode(84, "ELECTION_NOT_NEEDED", _REFRESH, _NO, "the leader is there; retried by itself"),
    ErrorCode(87, "INVALID_RECORD", _NONE, _NO, "the broker found the record invalid; see its message"),
    ErrorCode(88, "UNSTABLE_OFFSET_COMMIT", _RETRY, _NO, "wait for the end of the transaction"),
    ErrorCode(89, "THROTTLING_QUOTA_EXCEEDED", _RETRY, _NO, "a quota is used up; retried later"),
    ErrorCode(90, "PRODUCER_FENCED", _FATAL, _NO, "a newer producer with the same transactional id took over"),
    ErrorCode(100, "UNKNOWN_TOPIC_ID", _REFRESH, _NO, "the topic was deleted or created anew; retried"),
    ErrorCode(103, "INCONSISTENT_TOPIC_ID", _REFRESH, _NO, "the topic was created anew; retried"),
    ErrorCode(120, "TRANSACTION_ABORTABLE", _NONE, _NO, "abort the transaction and write again"),
    ErrorCode(129, "REBOOTSTRAP_REQUIRED", _REFRESH, _NO, "start again from the bootstrap servers"),
)

ERROR_CODES: dict[int, ErrorCode] = {row.code: row for row in _TABLE}
"""Every error code that a producer, the tools or the embedded broker deal in."""


def error_code(code: int) -> ErrorCode:
    """The table's row for `code`; an unknown code is not retried and may have persisted, as in Java's client."""
    row = ERROR_CODES.get(code)
    if row is None:
        return ErrorCode(
            code, f"UNKNOWN_ERROR_CODE_{code}", Action.NONE, Persisted.POSSIBLY, "look into the broker's log"
        )
    return row


def broker_error(code: int, subject: str, message: str | None = None, **details: object) -> BrokerError:
    """A `BrokerError` for `code` about `subject` ("topic 'x', partition 3"), with the broker's own message if it gave one."""
    row = error_code(code)
    said = f" The broker says: {message}." if message else ""
    kind = TopicNotFound if code == 3 else BrokerError
    return kind(f"{row.name} ({code}) for {subject}.{said} What to do: {row.advice}.", code=code, **details)
