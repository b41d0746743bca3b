"""Our side of a way in: the settings of `Producer` and the options of the sink, in either spelling; rows to write and to find.

Owns: the spelling. Must not know: what is expected.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import pyarrow as pa

from spark_producer import Producer
from spark_producer.config import data_source_name
from tests.security.ways import Way, read_by_librdkafka, unsigned_token
from tests.support.secured_kafka import SecuredKafka

TIMEOUT_MS = 60_000
"""`max.block.ms` wherever an error must come long before it."""
SECONDS = 20.0
"""Much less than `TIMEOUT_MS`, and much more than the two seconds that are required, since this machine may be slow."""
MODULES = {
    "PLAIN": "plain.PlainLoginModule",
    "SCRAM-SHA-256": "scram.ScramLoginModule",
    "SCRAM-SHA-512": "scram.ScramLoginModule",
    "OAUTHBEARER": "oauthbearer.OAuthBearerLoginModule",
}


def token() -> tuple[str, int]:
    """A provider of tokens, which are good."""
    text, end = unsigned_token()
    return text, int(end * 1000)


def old_token() -> tuple[str, int]:
    """A provider of tokens that ended half an hour ago, and says that they are good."""
    text, _ = unsigned_token(seconds=-1800, begun=3600)
    return text, int((time.time() + 3600) * 1000)


def nameless_token() -> tuple[str, int]:
    """A provider of tokens without a user."""
    text, end = unsigned_token(claim="other")
    return text, int(end * 1000)


def named_by_java(options: Mapping[str, str]) -> dict[str, str]:
    """The same settings in the names of Kafka's Java clients."""
    found = dict(options)
    if "ssl.ca.location" in found:
        found |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": found.pop("ssl.ca.location")}
    if "ssl.certificate.location" in found:
        chain = found.pop("ssl.certificate.location")
        del found["ssl.key.location"]
        found |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": chain.removesuffix(".crt") + ".pem"}
    if "sasl.username" in found:
        user, password = found.pop("sasl.username"), found.pop("sasl.password")
        module = f"org.apache.kafka.common.security.{MODULES[found['sasl.mechanism']]}"
        found["sasl.jaas.config"] = f'{module} required username="{user}" password="{password}";'
    return found


def settings(
    way: Way, secured: SecuredKafka, *, java: bool = False, more: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the options of `Producer`."""
    options = way.options(secured)
    if options.get("sasl.mechanism") == "OAUTHBEARER":
        options.setdefault("oauthTokenProvider", "tests.security.ours:token")
    return {"bootstrap.servers": way.address(secured), **(named_by_java(options) if java else options), **(more or {})}


def sink_options(
    way: Way, secured: SecuredKafka, *, java: bool = False, more: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The same as options of the sink, without a topic."""
    return {data_source_name(name): value for name, value in settings(way, secured, java=java, more=more).items()}


def numbers(first: int, count: int) -> pa.RecordBatch:
    """Rows whose values count up."""
    return pa.record_batch({"value": [b"%d" % number for number in range(first, first + count)]})


def write(settings_of_producer: Mapping[str, str], topic: str, count: int = 1000) -> None:
    """A producer, `count` rows, and its end."""
    with Producer(dict(settings_of_producer)) as producer:
        producer.send_batch(numbers(0, count), topic=topic)
        producer.flush()


def values(secured: SecuredKafka, topic: str) -> list[list[int]]:
    """Return the records of each non-empty partition in the order of offsets, as a foreign client reads them."""
    found: dict[int, list[int]] = {}
    for row in read_by_librdkafka(secured, topic):
        found.setdefault(row.partition, []).append(int(row.value or b"-1"))
    return list(found.values())


def assert_once_and_in_order(found: Sequence[Sequence[int]], count: int) -> None:
    """Each of the first `count` numbers once; in each partition from low to high."""
    assert sorted(number for partition in found for number in partition) == list(range(count))
    assert all(list(partition) == sorted(partition) for partition in found)


@contextmanager
def soon() -> Iterator[None]:
    """Require the `with` block to end within SECONDS, also by an exception."""
    begun = time.monotonic()
    try:
        yield
    finally:
        took = time.monotonic() - begun
        assert took < SECONDS, f"it took {took:.1f} s"
