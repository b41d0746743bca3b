"""Every exception of the package: one tree, and all of it picklable, since exceptions cross Spark's processes.

Every message says what happened, to what, and what to do. No message ever holds a secret.
"""

from __future__ import annotations

from spark_producer.common.error_codes import Code
from spark_producer.common.escape import for_log

MAX_MESSAGE = 20_000
"""The maximum characters of the message of an error: names of a peer, of which it holds some, have 32,767 at most."""


class PyProducerError(Exception):
    """The root of all errors of this package.

    `message` is the whole text; `details` become attributes and survive pickling (BaseException keeps `__dict__`). Whatever names
    and texts of peers and files it holds, characters that could control a terminal or a log are escaped in it, and it is cut.
    """

    def __init__(self, message: str, **details: object) -> None:
        super().__init__(for_log(message, limit=None)[:MAX_MESSAGE])
        self.__dict__.update(details)


class ConfigError(PyProducerError):
    """An option is unknown, has a bad value, or contradicts another one."""


class SchemaError(PyProducerError):
    """A column is missing, unknown, or has a type that cannot be written."""


class RecordError(PyProducerError):
    """A row cannot be written: a topic or header key is null, or a partition or timestamp is bad."""


class RecordTooLarge(RecordError):
    """A row is larger than `max.request.size` or `buffer.memory` allow."""


class RegistryError(PyProducerError):
    """The Schema Registry cannot be asked, or refuses: it wants another login, does not have a schema, or rejects one."""


class SchemaIncompatible(RegistryError):
    """The Schema Registry refuses a schema that does not fit the other versions of its subject (409)."""


class RecordBatchError(PyProducerError):
    """A record batch cannot be built as asked: its fields contradict each other, or it takes no more records."""


class TooManyBadRows(PyProducerError):
    """More rows of a task are bad than `maxBadRecords` or `maxBadRecordsRatio` let go to the dead-letter topic."""


class PartitionerError(PyProducerError):
    """A custom partitioner raised an error, or did not return one partition of the topic per row."""


class CorruptRecord(PyProducerError):
    """Bytes are not valid record batches: a CRC, a magic number or a length is wrong."""


class ProtocolError(PyProducerError):
    """Bytes do not follow the Kafka protocol."""


class LocalProtocolError(ProtocolError):
    """This side tried to send something that the protocol does not allow."""


class RemoteProtocolError(ProtocolError):
    """The peer sent something that the protocol does not allow: truncated, too large, garbage, or not asked for."""


class UnsupportedVersion(ProtocolError):
    """Client and broker have no version of an API in common."""


class ConnectionFailed(PyProducerError):
    """A connection could not be made, or broke (every OSError of a socket becomes this one)."""


class SecurityError(PyProducerError):
    """A connection cannot be made secure, or the login failed.

    With `fatal` the same settings will fail again, so every wait ends at once. No message holds a secret; what the broker says is
    shown with its control characters escaped.
    """

    fatal: bool = False


class AuthenticationFailed(SecurityError):
    """The broker refused the login, or did not prove that it knows the password (SASL)."""


class TlsFailed(SecurityError):
    """The TLS handshake failed, or a certificate, key or store cannot be used.

    With `silent` the peer closed the connection at our first message, without one of its own.
    """

    silent: bool = False


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
    """The caller has a defect: it did something twice, or in an order that makes no sense."""


class TransactionAbortable(PyProducerError):
    """The transaction cannot be committed, since something of it is missing: abort it, and write its rows again."""


class TransactionAborted(PyProducerError):
    """The row was not written because its transaction was aborted, or can only be aborted."""


class TransactionTimeout(KafkaTimeout):
    """A call that begins or ends a transaction was not answered in time; it goes on, and the same call gets its result."""


class CommitError(PyProducerError):
    """The driver cannot accept what the tasks report."""


class ExactlyOnceError(PyProducerError):
    """An exactly-once write is refused or stopped, since going on could lose rows or write them twice.

    `kind` is the name of the failure (`spark_producer.exactly_once.protocol.outcomes.Failure`), or empty if the write never
    came to be judged; `names` are the transactions or partitions in question. With `again` the same batch can simply run again,
    and each row of it will be visible once; otherwise a person must decide.
    """

    kind: str = ""
    names: tuple[str, ...] = ()
    again: bool = False


class BrokerError(PyProducerError):
    """The broker refused a request; `code` is its error code, a `spark_producer.common.error_codes.Code`."""

    code: Code


class RecordsRefused(BrokerError):
    """The broker refused a batch because of single records in it (KIP-467).

    `records` has the broker's complaint about each refused record, by its index in the batch. `rows` has the same by the number
    of the row: in its table, or, from `send_batch`, counted from `first_row` on. It has the rows of the thread that is told, and
    is empty if they are of several tables at once, whose futures name theirs.
    """

    records: dict[int, str]
    rows: dict[int, str]


class ProducerFenced(BrokerError):
    """A newer producer has the transactional id, or the transaction has timed out: this producer has ended."""


class TopicNotFound(BrokerError):
    """A topic, or a partition that it had before, does not exist (and is not created automatically)."""


RIGHTS = (
    Code.TOPIC_AUTHORIZATION_FAILED,
    Code.GROUP_AUTHORIZATION_FAILED,
    Code.CLUSTER_AUTHORIZATION_FAILED,
    Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)
"""The codes that say that a user lacks a right."""


_KINDS = {
    Code.UNKNOWN_TOPIC_OR_PARTITION: TopicNotFound,
    Code.PRODUCER_FENCED: ProducerFenced,
    Code.INVALID_PRODUCER_ID_MAPPING: ProducerFenced,
}


def broker_error(
    code: int, subject: str, message: str | None = None, *, user: str = "", advice: str = "", **details: object
) -> BrokerError:
    """Return a `BrokerError` for `code` about `subject` ("topic 'x', partition 3"), with the broker's own message if any.

    `user` ("user 'app'") is named if the code says that a right is missing. `advice` replaces that of the code.
    """
    known = Code(code)
    if user and known in RIGHTS:
        subject = f"{subject}; the broker knows us as {user}"
    said = f" The broker says: {for_log(message)}." if message else ""
    kind = _KINDS.get(known, BrokerError)
    return kind(
        f"{known.name} ({known}) for {subject}.{said} What to do: {advice or known.advice}.", code=known, **details
    )
