"""What Kafka's ProducerPerformance does, with our producer: records at a steady rate, latencies to the acknowledgement.

Owns: the pace and the clock around `send`. Runs as a process of its own, as Java's does; prints one line of JSON.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pyarrow as pa

from spark_producer import Producer

GROUP = 4
"""Records handed over at once, as one Arrow batch and a single record in front of it, whose latency is taken: a call for
each of them would cost more than what is compared."""


def run(topic: str, records: int, rate: float, size: int, settings: dict[str, str]) -> dict[str, float]:
    """Send `records` of `size` bytes at `rate` per second; percentiles as ProducerPerformance takes them, in ms."""
    latencies: list[float] = []

    def keep(sent: float) -> Callable[[Future[Any]], None]:
        def done(future: Future[Any]) -> None:
            if future.exception() is None:
                latencies.append(time.perf_counter() - sent)

        return done

    value = b"x" * size
    others = pa.record_batch({"value": pa.array([value] * (GROUP - 1), pa.binary())})
    groups = records // GROUP
    with Producer(settings) as producer:
        producer.send(topic, value).result(60)  # connections and metadata are not what is measured
        begun = time.perf_counter()
        for number in range(groups):
            ahead = number * GROUP / rate - (time.perf_counter() - begun)
            if ahead > 0:
                time.sleep(ahead)
            sent = time.perf_counter()
            producer.send(topic, value).add_done_callback(keep(sent))
            producer.send_batch(others, topic=topic)
        producer.flush()
        seconds = time.perf_counter() - begun
    if len(latencies) != groups:
        raise RuntimeError(f"{len(latencies)} of {groups} records were acknowledged")
    ordered = sorted(latencies)
    found = {f"p{share * 100:g}": 1000 * ordered[int(share * groups)] for share in (0.5, 0.95, 0.99, 0.999)}
    mean = 1000 * sum(ordered) / groups
    return {"mean": mean, **found, "max": 1000 * ordered[-1], "megabytes": groups * GROUP * size / seconds / (1 << 20)}


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    print(json.dumps(run(**given)))
