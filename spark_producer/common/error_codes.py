"""Kafka's error codes: their names, what a producer does about each of them, and what people can do.

The numbers and names are those of Kafka's `org.apache.kafka.common.protocol.Errors`; what a producer retries follows the
exceptions that Kafka's clients map them to (`RetriableException`, `InvalidMetadataException`) and `Sender.completeBatch`.
"""

from __future__ import annotations

import enum
from typing import Self


class Action(enum.Flag):
    """What a producer does about an error code. Without any of them the records have failed, and the producer goes on."""

    NONE = 0
    RETRY = enum.auto()
    REFRESH_METADATA = enum.auto()
    SPLIT = enum.auto()
    SUCCESS = enum.auto()
    FATAL = enum.auto()


_NONE, _RETRY, _REFRESH = Action.NONE, Action.RETRY, Action.RETRY | Action.REFRESH_METADATA
_SPLIT, _SUCCESS, _FATAL = Action.SPLIT, Action.SUCCESS, Action.FATAL
_SEE_BROKER_LOG = "look into the broker's log"


class Code(enum.IntEnum):
    """Every error code that a producer, the tools or the embedded broker use: number, action, advice for people.

    A member is an `int`, so it can be compared with the number in an answer, and is written as one. `Code(number)` accepts
    every number: one that is not in the table, from a newer broker, is named by its number and not retried, as in Kafka's own
    clients.
    """

    action: Action
    advice: str

    def __new__(cls, number: int, action: Action = _NONE, advice: str = _SEE_BROKER_LOG) -> Self:
        """Make a member from a row of the table below. The defaults are for a number that is not in the table."""
        code = int.__new__(cls, number)
        code._value_, code.action, code.advice = number, action, advice
        return code

    @classmethod
    def _missing_(cls, value: object) -> Code | None:
        if not isinstance(value, int):
            return None
        code = int.__new__(cls, value)
        code._name_, code._value_ = f"UNKNOWN_ERROR_CODE_{value}", value
        code.action, code.advice = _NONE, _SEE_BROKER_LOG
        return code

    UNKNOWN_SERVER_ERROR = -1, _NONE, _SEE_BROKER_LOG
    NONE = 0, _NONE, ""
    OFFSET_OUT_OF_RANGE = 1, _NONE, "ask for an offset that the log still holds"
    CORRUPT_MESSAGE = 2, _RETRY, "bytes were damaged on the way; check the network"
    UNKNOWN_TOPIC_OR_PARTITION = 3, _REFRESH, "create the topic, or correct its name"
    LEADER_NOT_AVAILABLE = 5, _REFRESH, "wait for the election, or find out why no replica is alive"
    NOT_LEADER_OR_FOLLOWER = 6, _REFRESH, "the leader moved; retried by itself"
    REQUEST_TIMED_OUT = 7, _RETRY, "replicas are slow; see request.timeout.ms"
    BROKER_NOT_AVAILABLE = 8, _NONE, "start the broker"
    REPLICA_NOT_AVAILABLE = 9, _REFRESH, "wait for the replica"
    MESSAGE_TOO_LARGE = 10, _SPLIT, "raise the topic's max.message.bytes, or make the row smaller"
    OFFSET_METADATA_TOO_LARGE = 12, _NONE, "shorten the metadata of the offset"
    NETWORK_EXCEPTION = 13, _REFRESH, "the connection broke; check the network and the broker"
    COORDINATOR_LOAD_IN_PROGRESS = 14, _RETRY, "wait for the coordinator"
    COORDINATOR_NOT_AVAILABLE = 15, _RETRY, "wait for the coordinator"
    NOT_COORDINATOR = 16, _RETRY, "the coordinator moved; retried by itself"
    INVALID_TOPIC_EXCEPTION = 17, _NONE, "use a legal topic name: letters, digits, '.', '_' and '-'"
    RECORD_LIST_TOO_LARGE = 18, _NONE, "lower batch.size"
    NOT_ENOUGH_REPLICAS = 19, _RETRY, "fewer replicas in sync than min.insync.replicas"
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20, _RETRY, "replicas fell behind min.insync.replicas"
    INVALID_REQUIRED_ACKS = 21, _NONE, "acks is one of all, -1, 1, 0"
    ILLEGAL_GENERATION = 22, _NONE, "the group has moved on; join it again"
    INCONSISTENT_GROUP_PROTOCOL = (
        23,
        _NONE,
        "all members of a group share a protocol; see partition.assignment.strategy",
    )
    INVALID_GROUP_ID = 24, _NONE, "a group has a name"
    UNKNOWN_MEMBER_ID = 25, _NONE, "the group has let this member go; join it again"
    INVALID_SESSION_TIMEOUT = 26, _NONE, "set session.timeout.ms within the bounds of the broker"
    REBALANCE_IN_PROGRESS = 27, _NONE, "the group is being shared out anew; join it again"
    TOPIC_AUTHORIZATION_FAILED = 29, _NONE, "grant WRITE on the topic to this user"
    GROUP_AUTHORIZATION_FAILED = 30, _NONE, "grant READ on the group to this user"
    CLUSTER_AUTHORIZATION_FAILED = 31, _FATAL, "grant IDEMPOTENT_WRITE on the cluster to this user"
    INVALID_TIMESTAMP = 32, _NONE, "the timestamp is outside what the topic accepts"
    UNSUPPORTED_SASL_MECHANISM = 33, _FATAL, "use a mechanism that the broker enables"
    ILLEGAL_SASL_STATE = 34, _FATAL, "check security.protocol on both sides"
    UNSUPPORTED_VERSION = 35, _FATAL, "the broker does not speak this version of the request"
    TOPIC_ALREADY_EXISTS = 36, _NONE, "the topic is already there"
    INVALID_PARTITIONS = 37, _NONE, "a topic has at least one partition"
    INVALID_REPLICATION_FACTOR = 38, _NONE, "ask for fewer replicas, or start more brokers: each has one of them"
    INVALID_REPLICA_ASSIGNMENT = 39, _NONE, "correct the replica assignment"
    INVALID_CONFIG = 40, _NONE, "correct the topic's configuration"
    NOT_CONTROLLER = 41, _RETRY, "the controller moved; ask again"
    INVALID_REQUEST = 42, _NONE, "the request contradicts itself"
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, _NONE, "the topic's message format is too old"
    POLICY_VIOLATION = 44, _NONE, "the broker's policy forbids it"
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, _RETRY, "an earlier batch is missing; retried in order"
    DUPLICATE_SEQUENCE_NUMBER = 46, _SUCCESS, "the batch was already written"
    INVALID_PRODUCER_EPOCH = (
        47,
        _NONE,
        "a newer producer took over, or the transaction took longer than transaction.timeout.ms; abort_transaction() tells",
    )
    INVALID_TXN_STATE = (
        48,
        _NONE,
        "the transaction is over, maybe by transaction.timeout.ms; close this producer, and write the rows again with a new one",
    )
    INVALID_PRODUCER_ID_MAPPING = (
        49,
        _FATAL,
        "the producer id is not that of the transactional id any more: the id was idle for longer than the brokers' "
        "transactional.id.expiration.ms (7 days by default), or was taken over; close this producer, and take a new one",
    )
    INVALID_TRANSACTION_TIMEOUT = (
        50,
        _NONE,
        "lower transaction.timeout.ms, or raise the broker's transaction.max.timeout.ms",
    )
    CONCURRENT_TRANSACTIONS = 51, _RETRY, "wait for the other transaction"
    TRANSACTION_COORDINATOR_FENCED = 52, _NONE, "the coordinator moved; ask the new one"
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, _FATAL, "grant WRITE on the transactional id"
    SECURITY_DISABLED = 54, _FATAL, "security features are off on the broker"
    OPERATION_NOT_ATTEMPTED = 55, _NONE, "another partition of the same request was refused"
    KAFKA_STORAGE_ERROR = 56, _REFRESH, "the broker's disk failed; look into its log"
    SASL_AUTHENTICATION_FAILED = 58, _FATAL, "check user name and password"
    UNKNOWN_PRODUCER_ID = 59, _NONE, "the broker forgot this producer; write again"
    REASSIGNMENT_IN_PROGRESS = 60, _NONE, "wait for the reassignment"
    NON_EMPTY_GROUP = 68, _NONE, "stop the members of the group first"
    GROUP_ID_NOT_FOUND = 69, _NONE, "there is no such group"
    FETCH_SESSION_ID_NOT_FOUND = 70, _RETRY, "fetch without a session, or open a new one"
    LISTENER_NOT_FOUND = 72, _REFRESH, "the leader has no listener of this name"
    TOPIC_DELETION_DISABLED = 73, _NONE, "set delete.topic.enable on the broker"
    FENCED_LEADER_EPOCH = 74, _REFRESH, "the leader moved; retried by itself"
    UNKNOWN_LEADER_EPOCH = 75, _RETRY, "the broker's metadata is older than ours; retried"
    UNSUPPORTED_COMPRESSION_TYPE = 76, _NONE, "the broker does not know this codec"
    OFFSET_NOT_AVAILABLE = 78, _RETRY, "the new leader is catching up"
    MEMBER_ID_REQUIRED = 79, _NONE, "join again with the member id of the answer"
    PREFERRED_LEADER_NOT_AVAILABLE = 80, _REFRESH, "wait for the election"
    GROUP_MAX_SIZE_REACHED = 81, _NONE, "the group has as many members as the broker allows"
    FENCED_INSTANCE_ID = 82, _NONE, "another member of the group has the same group.instance.id"
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, _REFRESH, "wait for a replica that may lead"
    ELECTION_NOT_NEEDED = 84, _REFRESH, "the leader is there; retried by itself"
    GROUP_SUBSCRIBED_TO_TOPIC = 86, _NONE, "a member of the group still reads the topic"
    INVALID_RECORD = 87, _NONE, "the broker found the record invalid; see its message"
    UNSTABLE_OFFSET_COMMIT = 88, _RETRY, "wait for the end of the transaction"
    THROTTLING_QUOTA_EXCEEDED = 89, _RETRY, "a quota is used up; retried later"
    PRODUCER_FENCED = 90, _FATAL, "a newer producer with the same transactional id took over"
    UNKNOWN_TOPIC_ID = 100, _REFRESH, "the topic was deleted or created anew; retried"
    INCONSISTENT_TOPIC_ID = 103, _REFRESH, "the topic was created anew; retried"
    TRANSACTIONAL_ID_NOT_FOUND = 105, _NONE, "the coordinator does not know the transactional id; it may have expired"
    STALE_MEMBER_EPOCH = 113, _NONE, "the member's epoch is older than the group's; join it again"
    TRANSACTION_ABORTABLE = 120, _NONE, "abort the transaction and write again"
    INVALID_REGULAR_EXPRESSION = 128, _NONE, "correct the regular expression"
    REBOOTSTRAP_REQUIRED = 129, _REFRESH, "start again from the bootstrap servers"


FENCING = frozenset({Code.INVALID_PRODUCER_EPOCH, Code.INVALID_PRODUCER_ID_MAPPING, Code.PRODUCER_FENCED})
"""The codes by which brokers say that a producer id and epoch are not the newest of their transactional id. Which one it is
depends on the request, its version, and on whether the producer id was replaced too (measured with Kafka 3.9 and 4.3)."""
