"""The topics that are read: filled once for each scene, by the package's own producer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from spark_producer import Producer
from tests.support.kafka_cluster import KafkaCluster
from tests.support.read_confluent import count_rows

PARTITIONS = 4
KEY_BYTES = 9
_ROWS_AT_ONCE = 50_000
_TERMS = ("view", "search", "add_to_cart", "remove_from_cart", "checkout", "purchase", "Mozilla/5.0", "okhttp/5.1.0")


@dataclass(frozen=True)
class Scene:
    """One topic: its rows, the bytes of a value, its codec, and the bytes of a batch (None: the default).

    Values of a codec are words that repeat, else digits.
    """

    name: str
    rows: int
    value_bytes: int
    codec: str = "none"
    batch_bytes: int | None = None

    @property
    def title(self) -> str:
        """Return the title for people."""
        return f"{self.value_bytes:,} B values" + f", {self.codec}" * (self.codec != "none")


def fill(cluster: KafkaCluster, topic: str, scene: Scene, partitions: int = PARTITIONS) -> None:
    """Create the topic, and write the rows of a scene to it.

    Raises:
        RuntimeError: not all rows are in the topic afterwards.
    """
    cluster.create_topic(topic, partitions)
    options = {"bootstrap.servers": cluster.bootstrap_servers, "compression.type": scene.codec}
    if scene.batch_bytes is not None:
        options["batch.size"] = str(scene.batch_bytes)
    with Producer(options) as producer:
        for first in range(0, scene.rows, _ROWS_AT_ONCE):
            count = min(_ROWS_AT_ONCE, scene.rows - first)
            producer.send_batch(_rows(first, count, scene), topic=topic)
        producer.flush()
    found = count_rows(cluster.bootstrap_servers, topic, transactional=False)
    if found != scene.rows:
        raise RuntimeError(f"{found} records in topic {topic} instead of {scene.rows}")


def _rows(first: int, count: int, scene: Scene) -> pa.RecordBatch:
    numbers = range(first, first + count)
    keys = [b"%09d" % number for number in numbers]
    if scene.codec == "none":
        values = [(b"%d" % number).ljust(scene.value_bytes, b"x") for number in numbers]
    else:
        random = np.random.default_rng(first)
        choices = random.integers(0, len(_TERMS), (count, 4)).tolist()
        values = [event(number, picked, scene.value_bytes) for number, picked in zip(numbers, choices, strict=True)]
    partitions = np.arange(first, first + count) % PARTITIONS
    columns = {"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())}
    return pa.record_batch(columns | {"partition": pa.array(partitions, pa.int32())})


def event(number: int, picked: list[int], size: int) -> bytes:
    """Return JSON of `size` bytes, with blanks at its end."""
    terms = ",".join(f'"{_TERMS[each]}"' for each in picked)
    text = f'{{"id":{number},"at":{1_700_000_000_000 + number * 17},"kinds":[{terms}]}}'
    return text.encode().ljust(size, b" ")[:size]
