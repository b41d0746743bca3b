"""Single records through one producer, in a process of its own: `python -m benchmarks.single_contenders NAME SCENE …`.

It prints one line of JSON. It has a process of its own, so its CPU time is that of one producer with all its threads, and the
kernel of pyproducer can be chosen.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:  # each contender imports its own client, and no other
    from concurrent.futures import Future

    from spark_producer import RecordMetadata, TableMetadata

TOPIC = "single"
VALUE = b"x" * 100
LINGER_MS = 5
PACE = 2_000
"""The records a second of the paced scene."""
BATCH_RECORDS = 10_000
"""The records of one `produce_batch`: librdkafka's queue has 100,000 by default, and refuses more."""
DEADLINE = 60.0
"""The seconds within which all records must be acknowledged."""

OnAck = Callable[[], None]


@dataclass(frozen=True)
class Figures:
    """The figures of one run, in seconds, and in microseconds of CPU; `rate` is records a second. Those not measured are 0."""

    records: int
    rate: float
    cpu: float
    p50: float = 0.0
    p95: float = 0.0
    p99: float = 0.0


class Sender(Protocol):
    """One producer. `send` can take a callback; `wait` returns when all records are acknowledged."""

    def send(self, key: bytes, on_ack: OnAck | None) -> None:
        """Queue a record, and keep what is needed to know whether it arrived."""

    def send_all(self, keys: Sequence[bytes]) -> None:
        """Queue a record for each key, in the fastest way that this use of the producer has."""

    def one(self, key: bytes) -> None:
        """Send a record and wait for it."""

    def rest(self, seconds: float) -> None:
        """Wait for `seconds`, in which the producer may do its own work."""

    def wait(self) -> None:
        """Flush. Raises if any record was not written."""


class PyProducer:
    """pyproducer, which keeps and checks a future for each record, or counts with `on_delivery` instead."""

    def __init__(self, servers: str, linger_ms: int, futures: bool) -> None:
        from spark_producer import Producer

        self._producer = Producer({"bootstrap.servers": servers, "linger.ms": linger_ms})
        self._keeps = futures
        self._futures: list[Future[RecordMetadata]] = []
        self._acknowledged = 0
        self._sent = 0

    def send(self, key: bytes, on_ack: OnAck | None) -> None:
        if on_ack is not None:
            self._producer.send(TOPIC, VALUE, key=key, on_delivery=lambda _, error: on_ack())
        elif self._keeps:
            self._futures.append(self._producer.send(TOPIC, VALUE, key=key))
        else:
            self._sent += 1
            self._producer.send(TOPIC, VALUE, key=key, on_delivery=self._count)

    def send_all(self, keys: Sequence[bytes]) -> None:
        for key in keys:
            self.send(key, None)

    def one(self, key: bytes) -> None:
        self._producer.send(TOPIC, VALUE, key=key).result(DEADLINE)

    def rest(self, seconds: float) -> None:
        time.sleep(seconds)

    def wait(self) -> None:
        self._producer.flush()
        if any(future.result(0).offset < 0 for future in self._futures) or self._acknowledged != self._sent:
            raise RuntimeError("records were not acknowledged")
        self._futures.clear()

    def _count(self, _: object, error: Exception | None) -> None:
        self._acknowledged += error is None


class PyProducerMany(PyProducer):
    """pyproducer, which is given lists."""

    def __init__(self, servers: str, linger_ms: int) -> None:
        super().__init__(servers, linger_ms, True)
        self._many: list[Future[TableMetadata]] = []

    def send_all(self, keys: Sequence[bytes]) -> None:
        self._sent += len(keys)
        self._many.append(self._producer.send_many(TOPIC, [VALUE] * len(keys), keys=keys))

    def wait(self) -> None:
        self._producer.flush()
        self._acknowledged += sum(future.result(0).records for future in self._many)
        self._many.clear()
        super().wait()


class KafkaPython:
    def __init__(self, servers: str, linger_ms: int) -> None:
        from kafka import KafkaProducer

        self._producer: Any = KafkaProducer(bootstrap_servers=servers, linger_ms=linger_ms, acks="all")
        self._futures: list[Any] = []

    def send(self, key: bytes, on_ack: OnAck | None) -> None:
        future = self._producer.send(TOPIC, value=VALUE, key=key)
        if on_ack is not None:
            future.add_callback(lambda _: on_ack())
        self._futures.append(future)

    def send_all(self, keys: Sequence[bytes]) -> None:
        for key in keys:
            self.send(key, None)

    def one(self, key: bytes) -> None:
        self._producer.send(TOPIC, value=VALUE, key=key).get(DEADLINE)

    def rest(self, seconds: float) -> None:
        time.sleep(seconds)

    def wait(self) -> None:
        self._producer.flush()
        if any(future.get(DEADLINE).offset < 0 for future in self._futures):
            raise RuntimeError("records were not acknowledged")
        self._futures.clear()


class Confluent:
    """confluent-kafka. librdkafka has no futures; `on_delivery` is called by `poll`, which its users call in between."""

    def __init__(self, servers: str, linger_ms: int, counts: bool) -> None:
        from confluent_kafka import Producer

        options = {"bootstrap.servers": servers, "linger.ms": linger_ms, "acks": "all", "enable.idempotence": True}
        self._producer = Producer(options)
        self._counts = counts
        self._sent = self._acknowledged = 0

    def send(self, key: bytes, on_ack: OnAck | None) -> None:
        more: dict[str, Any] = {}
        if on_ack is not None:
            more["on_delivery"] = lambda error, _: on_ack()
        elif self._counts:
            self._sent += 1
            more["on_delivery"] = self._count
        while True:
            try:
                self._producer.produce(TOPIC, VALUE, key, **more)
                break
            except BufferError:
                self._producer.poll(0.01)
        if on_ack is None:
            self._producer.poll(0)

    def send_all(self, keys: Sequence[bytes]) -> None:
        for key in keys:
            self.send(key, None)

    def one(self, key: bytes) -> None:
        done: list[object] = []
        self._producer.produce(TOPIC, VALUE, key, on_delivery=lambda error, _: done.append(error))
        while not done:
            self._producer.poll(DEADLINE)

    def rest(self, seconds: float) -> None:
        end = time.perf_counter() + seconds
        while (left := end - time.perf_counter()) > 0:
            self._producer.poll(left)

    def wait(self) -> None:
        if self._producer.flush(DEADLINE) or self._acknowledged != self._sent:
            raise RuntimeError("records were not acknowledged")

    def _count(self, error: object, _: object) -> None:
        self._acknowledged += error is None


class ConfluentMany(Confluent):
    """confluent-kafka, which is given lists of dictionaries; they are made here, since callers do not have them."""

    def __init__(self, servers: str, linger_ms: int) -> None:
        super().__init__(servers, linger_ms, True)

    def send_all(self, keys: Sequence[bytes]) -> None:
        self._sent += len(keys)
        for first in range(0, len(keys), BATCH_RECORDS):
            messages = [{"value": VALUE, "key": key} for key in keys[first : first + BATCH_RECORDS]]
            while messages:
                self._producer.produce_batch(TOPIC, messages, on_delivery=self._count)
                messages = [{"value": VALUE, "key": each["key"]} for each in messages if "_error" in each]
                self._producer.poll(0.01 if messages else 0)


SENDERS: dict[str, Callable[[str, int], Sender]] = {
    "pyproducer": lambda servers, linger: PyProducer(servers, linger, True),
    "pyproducer-callbacks": lambda servers, linger: PyProducer(servers, linger, False),
    "pyproducer-many": PyProducerMany,
    "kafka-python": KafkaPython,
    "confluent": lambda servers, linger: Confluent(servers, linger, False),
    "confluent-callbacks": lambda servers, linger: Confluent(servers, linger, True),
    "confluent-many": ConfluentMany,
}


def keys(count: int) -> list[bytes]:
    return [b"k%08d" % number for number in range(count)]


def rate(made: Sender, count: int) -> Figures:
    """Send records as fast as possible, until the last is acknowledged."""
    given = keys(count)
    began, cpu = time.perf_counter(), time.process_time()
    made.send_all(given)
    made.wait()
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    return Figures(count, count / seconds, cpu * 1e6 / count)


def paced(made: Sender, count: int) -> Figures:
    """Send `PACE` records a second, each at its time, and measure from the call to its callback."""
    took: list[float] = []
    began, cpu = time.perf_counter(), time.process_time()
    for number, key in enumerate(keys(count)):
        due = began + number / PACE
        if (left := due - time.perf_counter()) > 0:
            made.rest(left)
        made.send(key, _stopwatch(time.perf_counter(), took))
    made.wait()
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    return _with_percentiles(Figures(count, count / seconds, cpu * 1e6 / count), took)


def one_by_one(made: Sender, count: int) -> Figures:
    """Send records one by one, and wait for each before the next."""
    took: list[float] = []
    start, cpu = time.perf_counter(), time.process_time()
    for key in keys(count):
        began = time.perf_counter()
        made.one(key)
        took.append(time.perf_counter() - began)
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    return _with_percentiles(Figures(count, count / seconds, cpu * 1e6 / count), took)


def _stopwatch(began: float, took: list[float]) -> OnAck:
    return lambda: took.append(time.perf_counter() - began)


def _with_percentiles(found: Figures, took: Sequence[float]) -> Figures:
    if len(took) != found.records:
        raise RuntimeError(f"{len(took)} of {found.records} records were acknowledged")
    cuts = statistics.quantiles(took, n=100)
    return dataclasses.replace(found, p50=cuts[49], p95=cuts[94], p99=cuts[98])


SCENES: dict[str, tuple[int, Callable[[Sender, int], Figures]]] = {
    "rate": (LINGER_MS, rate),
    "paced": (0, paced),
    "one by one": (0, one_by_one),
}
"""Scene → linger.ms, and the function that measures it."""


def main(given: list[str]) -> None:
    """Warm up with a part of the records, then measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.single_contenders", description=__doc__)
    parser.add_argument("sender", choices=SENDERS)
    parser.add_argument("scene", choices=SCENES)
    parser.add_argument("servers")
    parser.add_argument("records", type=int)
    options = parser.parse_args(given)
    linger, measure = SCENES[options.scene]
    made = SENDERS[options.sender](options.servers, linger)
    measure(made, max(2, options.records // 5))
    print(json.dumps(dataclasses.asdict(measure(made, options.records))), flush=True)
    os._exit(0)  # confluent-kafka and kafka-python take seconds to close, and nothing is left to be sent


if __name__ == "__main__":
    main(sys.argv[1:])
