"""Every exception of the package: one tree, and all of it picklable, since exceptions cross Spark's processes.

Every message says what happened, to what, and what to do. No message ever holds a secret.
"""

from __future__ import annotations

from spark_producer.codes import Code


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
    """The broker refused a request; `code` is its error code, a `spark_producer.codes.Code`."""

    code: Code


class RecordsRefused(BrokerError):
    """The broker refused a batch for single records of it (KIP-467).

    `records`: the broker's complaint for each refused record, by its index in the batch; `rows`, where the records came
    from a table: the same by row of the table.
    """

    records: dict[int, str]
    rows: dict[int, str]


class TopicNotFound(BrokerError):
    """A topic does not exist (and is not created automatically)."""


def broker_error(code: int, subject: str, message: str | None = None, **details: object) -> BrokerError:
    """A `BrokerError` for `code` about `subject` ("topic 'x', partition 3"), with the broker's own message if it gave one."""
    known = Code(code)
    said = f" The broker says: {message}." if message else ""
    kind = TopicNotFound if known is Code.UNKNOWN_TOPIC_OR_PARTITION else BrokerError
    return kind(f"{known.name} ({known}) for {subject}.{said} What to do: {known.advice}.", code=known, **details)
