"""Kafka's error codes: the name, the reaction of a producer, and the advice to users of each.

The numbers and names are those of Kafka's `org.apache.kafka.common.protocol.Errors`; what a producer retries follows the
exceptions that Kafka's clients map them to (`RetriableException`, `InvalidMetadataException`) and `Sender.completeBatch`.
"""

from __future__ import annotations

import enum
from typing import Self


class Action(enum.Flag):
    """The reaction of a producer to an error code. Without any of these the records have failed, and the producer continues."""

    NONE = 0
    RETRY = enum.auto()
    REFRESH_METADATA = enum.auto()
    SPLIT = enum.auto()
    SUCCESS = enum.auto()
    FATAL = enum.auto()


_NONE, _RETRY, _REFRESH = Action.NONE, Action.RETRY, Action.RETRY | Action.REFRESH_METADATA
_SPLIT, _SUCCESS, _FATAL = Action.SPLIT, Action.SUCCESS, Action.FATAL
_SEE_BROKER_LOG = "see the broker's log"
_AWAIT_ELECTION = "wait for the election, or start a replica"
_LEADER_MOVED = "the leader moved"
_AWAIT_BROKER = "the broker is catching up"
_AWAIT_COORDINATOR = "wait for the coordinator"
_AWAIT_REPLICAS = "wait for more in-sync replicas, or lower min.insync.replicas"
_AWAIT_TRANSACTION = "wait for the end of the transaction"
_REJOIN = "rejoin the group"
_TOPIC_RECREATED = "the topic was deleted or created again"


class Code(enum.IntEnum):
    """The error codes that the producer, the commands and the embedded broker use: number, action and advice.

    A member is an `int`, so it can be compared with the number in a response, and is written as one. `Code(number)` accepts
    every number: an unknown one, from a newer broker, has its number in its name and is not retried, as in Kafka's clients.
    """

    action: Action
    advice: str

    def __new__(cls, number: int, action: Action = _NONE, advice: str = _SEE_BROKER_LOG) -> Self:
        """Create a member from a row of the table below. The defaults are for a number that is not in the table."""
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
    OFFSET_OUT_OF_RANGE = 1, _NONE, "request an offset that the log has"
    CORRUPT_MESSAGE = 2, _RETRY, "check the network"
    UNKNOWN_TOPIC_OR_PARTITION = 3, _REFRESH, "create the topic, or correct its name"
    LEADER_NOT_AVAILABLE = 5, _REFRESH, _AWAIT_ELECTION
    NOT_LEADER_OR_FOLLOWER = 6, _REFRESH, _LEADER_MOVED
    REQUEST_TIMED_OUT = 7, _RETRY, "replicas are slow; see request.timeout.ms"
    BROKER_NOT_AVAILABLE = 8, _NONE, "start the broker"
    REPLICA_NOT_AVAILABLE = 9, _REFRESH, _AWAIT_ELECTION
    MESSAGE_TOO_LARGE = 10, _SPLIT, "raise the topic's max.message.bytes, or make the row smaller"
    OFFSET_METADATA_TOO_LARGE = 12, _NONE, "shorten the metadata of the offset"
    NETWORK_EXCEPTION = 13, _REFRESH, "check the network and the broker"
    COORDINATOR_LOAD_IN_PROGRESS = 14, _RETRY, _AWAIT_COORDINATOR
    COORDINATOR_NOT_AVAILABLE = 15, _RETRY, _AWAIT_COORDINATOR
    NOT_COORDINATOR = 16, _RETRY, _AWAIT_COORDINATOR
    INVALID_TOPIC_EXCEPTION = 17, _NONE, "use letters, digits, '.', '_' and '-'"
    RECORD_LIST_TOO_LARGE = 18, _NONE, "lower batch.size"
    NOT_ENOUGH_REPLICAS = 19, _RETRY, _AWAIT_REPLICAS
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20, _RETRY, _AWAIT_REPLICAS
    INVALID_REQUIRED_ACKS = 21, _NONE, "set acks to all, -1, 1 or 0"
    ILLEGAL_GENERATION = 22, _NONE, _REJOIN
    INCONSISTENT_GROUP_PROTOCOL = (
        23,
        _NONE,
        "give all members of the group a partition.assignment.strategy in common",
    )
    INVALID_GROUP_ID = 24, _NONE, "name the group"
    UNKNOWN_MEMBER_ID = 25, _NONE, _REJOIN
    INVALID_SESSION_TIMEOUT = 26, _NONE, "set session.timeout.ms within the broker's bounds"
    REBALANCE_IN_PROGRESS = 27, _NONE, _REJOIN
    TOPIC_AUTHORIZATION_FAILED = 29, _NONE, "grant WRITE on the topic to this user"
    GROUP_AUTHORIZATION_FAILED = 30, _NONE, "grant READ on the group to this user"
    CLUSTER_AUTHORIZATION_FAILED = 31, _FATAL, "grant IDEMPOTENT_WRITE on the cluster to this user"
    INVALID_TIMESTAMP = 32, _NONE, "use a timestamp within the topic's limits"
    UNSUPPORTED_SASL_MECHANISM = 33, _FATAL, "use a mechanism that the broker enables"
    ILLEGAL_SASL_STATE = 34, _FATAL, "check security.protocol on both sides"
    UNSUPPORTED_VERSION = 35, _FATAL, "upgrade the broker"
    TOPIC_ALREADY_EXISTS = 36, _NONE, "the topic exists"
    INVALID_PARTITIONS = 37, _NONE, "give at least one partition"
    INVALID_REPLICATION_FACTOR = 38, _NONE, "lower the replication factor, or start more brokers"
    INVALID_REPLICA_ASSIGNMENT = 39, _NONE, "correct the replica assignment"
    INVALID_CONFIG = 40, _NONE, "correct the topic's configuration"
    NOT_CONTROLLER = 41, _RETRY, "the controller moved"
    INVALID_REQUEST = 42, _NONE, "the request contradicts itself"
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, _NONE, "upgrade the topic's message format"
    POLICY_VIOLATION = 44, _NONE, "obey the broker's policy"
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, _RETRY, "an earlier batch is missing"
    DUPLICATE_SEQUENCE_NUMBER = 46, _SUCCESS, "the batch was already written"
    INVALID_PRODUCER_EPOCH = (
        47,
        _NONE,
        "a newer producer took over, or transaction.timeout.ms passed; abort_transaction() shows which",
    )
    INVALID_TXN_STATE = (
        48,
        _NONE,
        "the transaction is over, perhaps by transaction.timeout.ms; write again with a new producer",
    )
    INVALID_PRODUCER_ID_MAPPING = (
        49,
        _FATAL,
        "the transactional id was idle for transactional.id.expiration.ms (7 days by default), or taken over; create a new "
        "producer",
    )
    INVALID_TRANSACTION_TIMEOUT = (
        50,
        _NONE,
        "lower transaction.timeout.ms, or raise the brokers' transaction.max.timeout.ms",
    )
    CONCURRENT_TRANSACTIONS = 51, _RETRY, _AWAIT_TRANSACTION
    TRANSACTION_COORDINATOR_FENCED = 52, _NONE, "the coordinator moved; use the new one"
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, _FATAL, "grant WRITE on the transactional id"
    SECURITY_DISABLED = 54, _FATAL, "the broker's security features are off"
    OPERATION_NOT_ATTEMPTED = 55, _NONE, "another partition of the request was rejected"
    KAFKA_STORAGE_ERROR = 56, _REFRESH, "the broker's disk failed; see its log"
    SASL_AUTHENTICATION_FAILED = 58, _FATAL, "check user name and password"
    UNKNOWN_PRODUCER_ID = 59, _NONE, "write again"
    REASSIGNMENT_IN_PROGRESS = 60, _NONE, "wait for the reassignment"
    NON_EMPTY_GROUP = 68, _NONE, "stop the group's members first"
    GROUP_ID_NOT_FOUND = 69, _NONE, "correct the group's name"
    FETCH_SESSION_ID_NOT_FOUND = 70, _RETRY, "fetch without a session, or open a new one"
    LISTENER_NOT_FOUND = 72, _REFRESH, "the leader lacks this listener"
    TOPIC_DELETION_DISABLED = 73, _NONE, "set delete.topic.enable on the broker"
    FENCED_LEADER_EPOCH = 74, _REFRESH, _LEADER_MOVED
    UNKNOWN_LEADER_EPOCH = 75, _RETRY, _AWAIT_BROKER
    UNSUPPORTED_COMPRESSION_TYPE = 76, _NONE, "use a codec that the broker knows"
    OFFSET_NOT_AVAILABLE = 78, _RETRY, _AWAIT_BROKER
    MEMBER_ID_REQUIRED = 79, _NONE, "rejoin with the member id of the response"
    PREFERRED_LEADER_NOT_AVAILABLE = 80, _REFRESH, _AWAIT_ELECTION
    GROUP_MAX_SIZE_REACHED = 81, _NONE, "remove a member, or raise the broker's group.max.size"
    FENCED_INSTANCE_ID = 82, _NONE, "give each member its own group.instance.id"
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, _REFRESH, _AWAIT_ELECTION
    ELECTION_NOT_NEEDED = 84, _REFRESH, "the leader is elected"
    GROUP_SUBSCRIBED_TO_TOPIC = 86, _NONE, "stop the group's readers of the topic"
    INVALID_RECORD = 87, _NONE, "see the broker's message"
    UNSTABLE_OFFSET_COMMIT = 88, _RETRY, _AWAIT_TRANSACTION
    THROTTLING_QUOTA_EXCEEDED = 89, _RETRY, "a quota is used up"
    PRODUCER_FENCED = 90, _FATAL, "a newer producer has the transactional id"
    UNKNOWN_TOPIC_ID = 100, _REFRESH, _TOPIC_RECREATED
    INCONSISTENT_TOPIC_ID = 103, _REFRESH, _TOPIC_RECREATED
    TRANSACTIONAL_ID_NOT_FOUND = 105, _NONE, "correct the transactional id, or it has expired"
    STALE_MEMBER_EPOCH = 113, _NONE, _REJOIN
    UNKNOWN_SUBSCRIPTION_ID = 117, _NONE, "request the subscription again"
    TELEMETRY_TOO_LARGE = 118, _NONE, "push fewer metrics, or raise telemetry.max.bytes"
    TRANSACTION_ABORTABLE = 120, _NONE, "abort the transaction and write again"
    INVALID_REGULAR_EXPRESSION = 128, _NONE, "correct the regular expression"
    REBOOTSTRAP_REQUIRED = (
        129,
        _REFRESH,
        "see where the addresses of brokers lead (advertised.listeners, DNS, load balancers)",
    )


FENCING = frozenset({Code.INVALID_PRODUCER_EPOCH, Code.INVALID_PRODUCER_ID_MAPPING, Code.PRODUCER_FENCED})
"""The error codes for a producer id and epoch that are not the newest of their transactional id. Which of them a broker returns
depends on the request, its version, and on whether the producer id was replaced too (measured with Kafka 3.9 and 4.3)."""
