"""Reads of Spark through a network that breaks: each row once, or one clear error, in bounded time. Batches and streams."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from spark_producer import Producer
from tests.conftest import KAFKA_4_FIRST, ProxiedBroker
from tests.spark.frames import short_message
from tests.spark.read_sources import batch, run, stream
from tests.support.proxy import Cut, Direction, FaultProxy

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.covers("RD9"),
    pytest.mark.parametrize("proxied", KAFKA_4_FIRST[:2], indirect=True),
]
FETCH, LIST_OFFSETS, METADATA = 1, 2, 3
ROWS, PARTITIONS = 60_000, 3
SECONDS = 120.0
OPTIONS = {
    "kafka.max.partition.fetch.bytes": "4000",
    "kafka.fetch.max.bytes": "12000",
    "kafka.request.timeout.ms": "1000",
    "kafka.reconnect.backoff.ms": "10",
    "kafka.reconnect.backoff.max.ms": "100",
    "kafka.retry.backoff.ms": "10",
    "kafka.retry.backoff.max.ms": "100",
}
"""Many requests, and short waits after a failure."""
GARBAGE = [
    b"HTTP/1.1 400 Bad Request\r\n\r\n",
    bytes(64),
    b"\0\0\0\x0a" + b"\x7f" * 10,
    b"\x7f\xff\xff\xff" + b"x" * 99,
]
Fault = Callable[[FaultProxy, random.Random], None]


def cut(proxy: FaultProxy, dice: random.Random) -> None:
    proxy.cut(dice.choice(list(Cut)))


def cut_inside(proxy: FaultProxy, dice: random.Random) -> None:
    proxy.cut_after(dice.randrange(1, 8000), dice.choice(list(Direction)), dice.choice(list(Cut)))


def half_close(proxy: FaultProxy, dice: random.Random) -> None:
    proxy.half_close(dice.choice(list(Direction)))


def garbage(proxy: FaultProxy, dice: random.Random) -> None:
    proxy.inject(dice.choice(GARBAGE), dice.choice(list(Direction)))


def lost(proxy: FaultProxy, dice: random.Random) -> None:
    api = dice.choice([FETCH, FETCH, LIST_OFFSETS, METADATA])
    dice.choice([proxy.lose_request, proxy.lose_response, proxy.drop_response])(api)


def pause(proxy: FaultProxy, dice: random.Random) -> None:
    direction = dice.choice(list(Direction))
    proxy.pause(direction)
    time.sleep(dice.choice([0.05, 1.2]))  # shorter and longer than the request timeout
    proxy.resume(direction)


def delay(proxy: FaultProxy, dice: random.Random) -> None:
    proxy.delay(dice.choice([0.0, 0.01, 0.05]), dice.choice(list(Direction)))


def refuse(proxy: FaultProxy, dice: random.Random) -> None:
    proxy.refuse()
    proxy.cut()
    time.sleep(dice.choice([0.05, 0.5]))  # the fault
    proxy.heal()


FAULTS: list[Fault] = [cut, cut_inside, half_close, garbage, lost, pause, delay, refuse]


def everything(proxy: FaultProxy, dice: random.Random) -> None:
    dice.choice(FAULTS)(proxy, dice)


@contextmanager
def breaking(proxy: FaultProxy, fault: Fault, every: float = 0.05, seed: int = 7) -> Iterator[list[int]]:
    """Break the network again and again, for a `with` block; the list has a number for each time."""
    over, times, dice = threading.Event(), list[int](), random.Random(seed)

    def play() -> None:
        while not over.wait(every):
            fault(proxy, dice)
            times.append(len(times))

    thread = threading.Thread(target=play, name="breaking")
    thread.start()
    try:
        yield times
    finally:
        over.set()
        thread.join(SECONDS)
        proxy.heal()


@pytest.fixture
def filled(proxied: ProxiedBroker, topic: str) -> ProxiedBroker:
    """A topic of `ROWS` numbers in small batches."""
    proxied.create_topic(topic, PARTITIONS)
    numbers = np.arange(ROWS)
    rows = {"value": pa.array(numbers).cast(pa.string()), "partition": (numbers % PARTITIONS).astype(np.int32)}
    with Producer({"bootstrap.servers": proxied.bootstrap_servers, "batch.size": 2000}) as producer:
        producer.send_batch(pa.record_batch(rows), topic=topic)
        producer.flush()
    return proxied


def assert_whole(frame: DataFrame) -> None:
    """Each number once, and at its offset."""
    table: pa.Table = frame.selectExpr("partition", "offset", "int(string(value)) as number").toArrow()
    found = {name: table.sort_by("number").column(name).to_numpy() for name in table.column_names}
    numbers = np.arange(ROWS)
    assert np.array_equal(found["number"], numbers), "nothing lost, nothing twice"
    assert np.array_equal(found["offset"], numbers // PARTITIONS)
    assert np.array_equal(found["partition"], numbers % PARTITIONS)


@pytest.mark.parametrize(
    "fault",
    [everything, *(pytest.param(each, marks=pytest.mark.campaign) for each in FAULTS)],
    ids=lambda fault: fault.__name__,
)
def test_a_batch(spark: SparkSession, filled: ProxiedBroker, topic: str, fault: Fault) -> None:
    begun = time.monotonic()
    with breaking(filled.proxy, fault) as times:
        assert_whole(batch(spark, filled, topic, OPTIONS))
    assert times, "the network was sound"
    assert time.monotonic() - begun < SECONDS


@pytest.mark.parametrize(
    "fault",
    [everything, *(pytest.param(each, marks=pytest.mark.campaign) for each in FAULTS)],
    ids=lambda fault: fault.__name__,
)
def test_a_stream(spark: SparkSession, filled: ProxiedBroker, topic: str, tmp_path: Path, fault: Fault) -> None:
    """The trigger availableNow with several micro-batches; a query that failed is started again, as its users do."""
    options = OPTIONS | {"startingOffsets": "earliest", "maxOffsetsPerTrigger": str(ROWS // 5)}
    files, failures, deadline = tmp_path / "files", list[str](), time.monotonic() + SECONDS

    def play() -> None:
        frame = stream(spark, filled, topic, options).select("partition", "offset", "value")
        writer = frame.writeStream.format("parquet").option("path", str(files))
        run(writer.option("checkpointLocation", str(tmp_path / "checkpoint")))

    with breaking(filled.proxy, fault) as times:
        while time.monotonic() < deadline:
            try:
                play()
            except StreamingQueryException as error:
                failures.append(short_message(str(error)))
            else:
                break
        else:
            raise AssertionError(f"the query did not end: {failures}")
    assert not failures, failures
    assert times, "the network was sound"
    assert_whole(spark.read.parquet(str(files)))


def swallow(proxy: FaultProxy) -> None:
    proxy.swallow(Direction.TO_CLIENT)


def unreachable(proxy: FaultProxy) -> None:
    proxy.refuse()
    proxy.cut()


def silent_from_the_first_fetch(proxy: FaultProxy) -> None:
    proxy.drop_response(FETCH, times=10_000)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (swallow, r"[Kk]afka|brokers?"),
        (unreachable, r"[Kk]afka|brokers?"),
        (silent_from_the_first_fetch, r"made no progress|no progress|within"),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_a_network_that_stays_broken_is_one_error_in_bounded_time(
    spark: SparkSession, filled: ProxiedBroker, topic: str, fault: Callable[[FaultProxy], None], said: str
) -> None:
    options: Mapping[str, str] = OPTIONS | {"kafka.default.api.timeout.ms": "3000"}
    fault(filled.proxy)
    begun = time.monotonic()
    with pytest.raises(Exception, match=said) as raised:
        batch(spark, filled, topic, options).collect()
    assert time.monotonic() - begun < 60
    text = short_message(str(raised.value))
    print(text[:1500])
    assert "What to do" in text or filled.proxy.address in text
