"""All exceptions of the package, in one tree. They are picklable, since they cross Spark's processes.

A message has the form `<what failed>: <cause>. <what to do>`, and never contains a secret.
"""

from __future__ import annotations

from spark_producer.common.error_codes import Code
from spark_producer.common.escape import for_log

MAX_MESSAGE = 20_000
"""Maximum length of an error message in characters. Names of a peer that it contains have up to 32,767 each."""


class PyProducerError(Exception):
    """The root of all errors of this package.

    `message` is the whole text; `details` become attributes and survive pickling (BaseException keeps `__dict__`). Characters of
    peers' and files' names and texts that could control a terminal or a log are escaped, and the message is cut to `MAX_MESSAGE`.
    """

    def __init__(self, message: str, **details: object) -> None:
        super().__init__(for_log(message, limit=None)[:MAX_MESSAGE])
        self.__dict__.update(details)


class ConfigError(PyProducerError):
    """An option is unknown, has a bad value, or contradicts another one."""


class SchemaError(PyProducerError):
    """A column is missing, unknown, or has a type that cannot be written."""


class RecordError(PyProducerError):
    """A row has a bad topic, header, partition or timestamp."""


class RecordTooLarge(RecordError):
    """A row exceeds `max.request.size` or `buffer.memory`."""


class RegistryError(PyProducerError):
    """The Schema Registry refused or failed a request: wrong login, or a missing or rejected schema.

    `status` is that of its response, if it refused.
    """

    status: int | None = None


class SchemaIncompatible(RegistryError):
    """A schema does not fit the other versions of its subject (409)."""


class RecordBatchError(PyProducerError):
    """A record batch has contradictory fields, or is full or closed."""


class TooManyBadRows(PyProducerError):
    """A task has more bad rows than `maxBadRecords` or `maxBadRecordsRatio` allow."""


class PartitionerError(PyProducerError):
    """A custom partitioner failed, or did not return one partition of the topic per row."""


class CorruptRecord(PyProducerError):
    """A record batch has a wrong CRC, magic number or length."""


class DataLoss(PyProducerError):
    """Offsets that were to be read are not in the log any more."""


class ProtocolError(PyProducerError):
    """Bytes do not follow the Kafka protocol."""


class LocalProtocolError(ProtocolError):
    """This client or broker tried to send what the protocol does not allow."""


class RemoteProtocolError(ProtocolError):
    """The peer sent bytes that are truncated, too large, malformed, or not requested."""


class UnsupportedVersion(ProtocolError):
    """Client and broker have no version of an API in common."""


class ConnectionFailed(PyProducerError):
    """A connection could not be made, or broke (from every OSError of a socket)."""


class SecurityError(PyProducerError):
    """Security of a connection, or a login, failed.

    With `fatal` the same settings will fail again, so every wait ends at once. No message contains a secret; control characters
    in the broker's message are escaped.
    """

    fatal: bool = False


class AuthenticationFailed(SecurityError):
    """The broker refused the login, or did not prove that it knows the password.

    Without `connected` there was no token or ticket, and so no connection.
    """

    connected: bool = True


LOGIN_ADVICE = "What to do: get a token or ticket first (see the error before); brokers answer no one without a login"
"""The advice about a wait that ended while there was no token or ticket: the brokers may be well."""


class TlsFailed(SecurityError):
    """The TLS handshake failed, or a certificate, key or store is unusable.

    With `silent` the peer closed the connection after the first message, without a response.
    """

    silent: bool = False


class KafkaTimeout(PyProducerError):
    """A wait reached its deadline."""


class BrokersUnreachable(KafkaTimeout):
    """None of the bootstrap servers answered in time."""


class MetadataTimeout(KafkaTimeout):
    """A topic or partition was unknown for `max.block.ms`."""


class BufferExhausted(KafkaTimeout):
    """Buffer memory was full for `max.block.ms`."""


class DeliveryTimeout(KafkaTimeout):
    """A batch was not acknowledged within `delivery.timeout.ms`."""


class ProducerClosed(PyProducerError):
    """The producer is closed."""


class IllegalState(PyProducerError):
    """A method was called twice, or in the wrong order."""


class TransactionAbortable(PyProducerError):
    """A part of the transaction failed, so it cannot be committed."""


class TransactionAborted(PyProducerError):
    """The row's transaction was aborted, or can only be aborted."""


class TransactionTimeout(KafkaTimeout):
    """A call that begins or ends a transaction timed out; it continues."""


class CommitError(PyProducerError):
    """Some tasks wrote nothing, or have another version of the package."""


class ExactlyOnceError(PyProducerError):
    """An exactly-once write stopped, since it could lose or duplicate rows.

    `kind` is the name of the failure (`spark_producer.exactly_once.protocol.outcomes.FailureKind`); it is empty for other causes,
    such as a control record that cannot be read. `names` are the transactions or partitions concerned. With `again` the same
    batch can be repeated, and each of its rows will be visible once; otherwise a person must decide.
    """

    kind: str = ""
    names: tuple[str, ...] = ()
    again: bool = False


class BrokerError(PyProducerError):
    """The broker refused a request, with a `code` (`spark_producer.common.error_codes.Code`)."""

    code: Code


class RecordsRefused(BrokerError):
    """The broker rejected single records of a batch (KIP-467).

    `records` has the broker's message for each rejected record, by its index in the batch. `rows` has the same by row number: in
    its table, or, from `send_batch`, counted from `first_row` on. It has the rows of the thread that gets the error. It is empty
    if they are of several tables: then the future of each table has the numbers of its own rows.
    """

    records: dict[int, str]
    rows: dict[int, str]


class ProducerFenced(BrokerError):
    """A newer producer has the transactional id, or the transaction timed out."""


class TopicNotFound(BrokerError):
    """A topic, or a partition that it had, does not exist."""


def text_and_advice(error: PyProducerError) -> tuple[str, str]:
    """Return an error's text without its advice ("" if it has none), and the advice, each without a full stop.

    A message that contains the text of another error has one advice, its own.
    """
    text, _, advice = str(error).partition(" What to do: ")  # texts of brokers are escaped in it already
    return text.rstrip("."), advice.rstrip(".")


RIGHTS = (
    Code.TOPIC_AUTHORIZATION_FAILED,
    Code.GROUP_AUTHORIZATION_FAILED,
    Code.CLUSTER_AUTHORIZATION_FAILED,
    Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)
"""The error codes for a missing ACL."""


_KINDS = {
    Code.UNKNOWN_TOPIC_OR_PARTITION: TopicNotFound,
    Code.PRODUCER_FENCED: ProducerFenced,
    Code.INVALID_PRODUCER_ID_MAPPING: ProducerFenced,
}


def broker_error(
    code: int, subject: str, message: str | None = None, *, user: str = "", advice: str = "", **details: object
) -> BrokerError:
    """Return a `BrokerError` for `code` and `subject` ("topic 'x', partition 3"), with the broker's own message if any.

    `user` ("user 'app'") is named if the code says that an ACL is missing. `advice` replaces that of the code.
    """
    known = Code(code)
    if user and known in RIGHTS:
        subject = f"{subject}; the broker knows us as {user}"
    detail = f" The broker says: {for_log(message)}." if message else ""
    kind = _KINDS.get(known, BrokerError)
    return kind(
        f"{known.name} ({known}) for {subject}.{detail} What to do: {advice or known.advice}.", code=known, **details
    )
