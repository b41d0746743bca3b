"""Rights that a reader lacks: one error on the driver, which names topic and user; everything else goes on."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator

import pytest

from spark_producer import Producer
from spark_producer.common.cluster import TopicPartition
from spark_producer.common.error_codes import Code
from spark_producer.datasource import PyProducerDataSource
from spark_producer.datasource.read.stream_readers import StreamReader
from spark_producer.errors import BrokerError
from tests.security import ours
from tests.security.ways import Way, login
from tests.support.secured_kafka import SecuredKafka

pytestmark = pytest.mark.covers("RD12")


@pytest.fixture
def user(secured: SecuredKafka) -> Iterator[str]:
    """A user of this test alone, who may do nothing."""
    name = f"user-{uuid.uuid4().hex[:8]}"
    secured.add_user(name, "pw")
    yield name
    secured.delete_user(name)


def read(secured: SecuredKafka, user: str, **options: str) -> list[bytes | None]:
    """The values of a batch, read as Spark's planner and tasks do it."""
    way = Way("SASLPLAIN", login("SASL_PLAINTEXT", "SCRAM-SHA-512", user, "pw"))
    source = PyProducerDataSource({**ours.sink_options(way, secured), **options})
    reader = source.reader(source.schema())
    batches = (batch for partition in reader.partitions() for batch in reader.read(partition))
    return [value for batch in batches for value in batch.column("value").to_pylist()]


def fill(secured: SecuredKafka, user: str, topic: str) -> None:
    """A topic with three records, of which the user has written none."""
    secured.create_topic(topic, 1)
    secured.allow(user, "WRITE", topic)
    way = Way("SASLPLAIN", login("SASL_PLAINTEXT", "SCRAM-SHA-512", user, "pw"))
    with Producer(ours.settings(way, secured)) as producer:
        for number in range(3):
            producer.send(topic, b"%d" % number)
        producer.flush()
    secured.forbid(user, "WRITE", topic)


def test_a_topic_that_may_not_be_read_is_an_error_before_any_task(secured: SecuredKafka, topic: str, user: str) -> None:
    for name in (topic, f"{topic}-open"):
        fill(secured, user, name)
    secured.allow(user, "READ", f"{topic}-open")
    for right in (None, "DESCRIBE"):
        if right is not None:
            secured.allow(user, right, topic)
        with pytest.raises(BrokerError, match="grant READ on the topic to this user") as refused, ours.soon():
            read(secured, user, subscribe=f"{topic}-open,{topic}")
        assert refused.value.code == Code.TOPIC_AUTHORIZATION_FAILED
        assert f"topic '{topic}'" in str(refused.value)
        assert user in str(refused.value)
    assert read(secured, user, subscribe=f"{topic}-open") == [b"0", b"1", b"2"]
    secured.allow(user, "READ", topic)
    assert len(read(secured, user, subscribe=f"{topic}-open,{topic}")) == 6


def test_a_pattern_finds_what_may_be_seen(secured: SecuredKafka, topic: str, user: str) -> None:
    for name in (topic, f"{topic}-open"):
        fill(secured, user, name)
    secured.allow(user, "READ", f"{topic}-open")
    assert read(secured, user, subscribePattern=f"^{topic}") == [b"0", b"1", b"2"]


def test_a_group_that_may_not_be_committed_is_a_warning(
    secured: SecuredKafka, topic: str, user: str, caplog: pytest.LogCaptureFixture
) -> None:
    fill(secured, user, topic)
    secured.allow(user, "READ", topic)
    way = Way("SASLPLAIN", login("SASL_PLAINTEXT", "SCRAM-SHA-512", user, "pw"))
    source = PyProducerDataSource({**ours.sink_options(way, secured), "subscribe": topic, "commitGroup": "lag"})
    reader = source.streamReader(source.schema())
    assert isinstance(reader, StreamReader)
    try:
        with caplog.at_level(logging.WARNING), ours.soon():
            reader.stream.commit({TopicPartition(topic, 0): 3})
    finally:
        reader.stop()
    (said,) = [record.getMessage() for record in caplog.records if "commitGroup" in record.getMessage()]
    assert "GROUP_AUTHORIZATION_FAILED" in said
    assert "grant READ on the group to this user" in said
    assert user in said
