"""Rights that exactly-once writes need: each one that is missing is named, with the command that grants it."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator

import pytest

from spark_producer.common.cluster import TransactionVersion
from spark_producer.config import data_source_name, parse_options
from spark_producer.errors import BrokerError
from spark_producer.exactly_once import driver
from spark_producer.exactly_once.driver import SinkSettings
from spark_producer.network import ConnectionSettings
from tests.security import ours
from tests.security.ways import Way, login
from tests.support.filled_tasks import SECONDS, Tasks, batch, inline
from tests.support.secured_kafka import PASSWORD, USER, SecuredKafka

MAX_RIGHTS = 10


def settings_of(secured: SecuredKafka, user: str, password: str) -> ConnectionSettings:
    way = Way("SASLPLAIN", login("SASL_PLAINTEXT", "SCRAM-SHA-512", user, password))
    options = {data_source_name(name): value for name, value in ours.settings(way, secured).items()}
    return ConnectionSettings.from_config(parse_options(options)[0])


@pytest.fixture
def sink(secured: SecuredKafka) -> Iterator[SinkSettings]:
    """A sink with a control topic of its own, of a user who may do nothing."""
    name = f"user-{uuid.uuid4().hex[:8]}"
    secured.add_user(name, "pw")
    yield SinkSettings(f"sink-{name}", settings_of(secured, name, "pw"), f"commits-{name}", SECONDS)
    driver.close_all()
    secured.delete_user(name)


def refusal(sink: SinkSettings, topic: str, number: int) -> str:
    """Write a row; what the error says if it is refused, else nothing."""
    try:
        handle = driver.begin(sink)
        driver.commit(sink, [inline(handle, number, batch(topic, 0, str(number)))], number)
    except BrokerError as error:
        return str(error)
    return ""


def write_and_allow(secured: SecuredKafka, sink: SinkSettings, topic: str, number: int) -> list[str]:
    """Write a row, grant the right that an error names, and write again, until it succeeds; return the granted rights."""
    user = sink.name.removeprefix("sink-")
    granted: list[str] = []
    while len(granted) < MAX_RIGHTS:
        said = refusal(sink, topic, number)
        if not said:
            return granted
        reported = re.search(r"`kafka-acls\.sh (.*)`", said)
        assert reported, said
        assert f"user '{user}'" in said
        assert f"User:{user}" in reported[1]
        secured.allow_as_advised(reported[1].replace("--bootstrap-server … ", ""))
        granted.append(re.sub(r".*?((--operation \w+ )+)(.*)", r"\1\3", reported[1]))
    raise AssertionError(granted)


def test_every_right_that_is_missing_is_reported_with_the_command_that_grants_it(
    secured: SecuredKafka, sink: SinkSettings, topic: str
) -> None:
    secured.create_topic(topic, 1)
    assert write_and_allow(secured, sink, topic, 0) == [
        f"--operation Read --operation Write --operation Describe --topic {sink.control_topic}",
        "--operation Write --operation Describe "
        f"--transactional-id pyproducer.{sink.name}. --resource-pattern-type prefixed",
        f"--operation Create --topic {sink.control_topic}",
        f"--operation Write --operation Describe --topic {topic}",
    ]
    assert write_and_allow(secured, sink, topic, 1) == []
    other = Tasks(settings_of(secured, USER, PASSWORD), f"other-{sink.name}")
    try:
        other.fill(0, TransactionVersion.EXPLICIT, {(topic, 0): ["open"]})
        # From now on only READ shows whether an older transaction of ours begins before.
        assert write_and_allow(secured, sink, topic, 2) == [f"--operation Read --topic {topic}"]
    finally:
        other.close()
