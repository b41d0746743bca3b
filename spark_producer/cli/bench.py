"""The command `pyproducer bench`, which measures how fast records go into a topic, by value size and codec."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from spark_producer.cli.arg_types import positive
from spark_producer.cli.connection_args import add_connection
from spark_producer.cli.json_output import add_json, print_json
from spark_producer.cli.producer_args import add_producer, producer_options
from spark_producer.cli.progress import ProgressBar
from spark_producer.cli.send import WARNING, send_all, wait_for_topic
from spark_producer.config import parse_options
from spark_producer.errors import ConfigError

CLIENT_ID = "pyproducer-bench"
ROWS = 10_000
"""Maximum rows of a batch."""

PATTERNS = 256
"""The number of different eight-letter pieces that values consist of, so that they compress about as well as JSON."""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command and its arguments to `commands`."""
    bench = commands.add_parser(
        "bench",
        description="Write records into a topic and print the speed for each value size and codec. The records stay there, so "
        "use a topic made for it. The figures include this machine and its network, not only the cluster.",
    )
    bench.add_argument("topic", metavar="TOPIC", help="an existing topic, or one that the brokers may create")
    add_connection(bench)
    bench.add_argument(
        "--records",
        type=positive,
        default=200_000,
        metavar="N",
        help="records for each size and codec (default: %(default)s)",
    )
    bench.add_argument("--sizes", default="100,1000", metavar="BYTES,…", help="sizes of values (default: %(default)s)")
    bench.add_argument(
        "--codecs", default="none,lz4,zstd", metavar="CODEC,…", help="compression codecs (default: %(default)s)"
    )
    add_producer(bench)
    add_json(bench, "a JSON object for each size and codec on a line")
    bench.set_defaults(run=_run, unfinished=WARNING)


def _run(chosen: argparse.Namespace) -> None:
    options = producer_options(chosen, CLIENT_ID)
    kinds = list(itertools.product(_sizes(chosen.sizes), chosen.codecs.split(",")))
    configs = [parse_options({**options, "kafka.compression.type": codec})[0] for _, codec in kinds]
    for (size, _), config in zip(kinds, configs, strict=True):
        if size > config.max_request_size:
            raise ConfigError(
                f"--sizes: a value of {size:,} bytes is more than max.request.size={config.max_request_size:,}. "
                "Raise it with --producer-config, and the topic's max.message.bytes too"
            )
    leaders = wait_for_topic(configs[0], chosen.topic, chosen.timeout)
    if not chosen.json:
        kinds_of = f"{chosen.records:,} records of each kind"
        print(f"{kinds_of} to {chosen.topic} ({len(leaders)} partition{'s' * (len(leaders) != 1)})")
        print(f"{'bytes':>8}  {'codec':<7} {'records/s':>12} {'MB/s':>8} {'packed to':>10} {'99 % within':>12}")
    for (size, codec), config in zip(kinds, configs, strict=True):
        bar = ProgressBar(f"{size} bytes, {codec}", chosen.records)
        try:
            sent = send_all(config, chosen.topic, _batches(chosen.records, size), bar)
        finally:
            bar.end()
        if chosen.json:
            kind = {"topic": chosen.topic, "value_bytes": size, "codec": codec}
            print_json(kind | sent.fields() | {"latency_p99_ms": sent.latency_p99})
            continue
        packed = 100 * sent.report.bytes / max(1, chosen.records * size)
        row = f"{size:>8}  {codec:<7} {sent.speed:>12,.0f} {sent.speed * size / 1e6:>8,.1f} {packed:>8,.0f} %"
        print(f"{row} {sent.latency_p99:>9,.1f} ms", flush=True)


def _sizes(text: str) -> list[int]:
    try:
        return [positive(size) for size in text.split(",")]
    except argparse.ArgumentTypeError as error:
        raise ConfigError(f"--sizes: {error}") from error


def _batches(records: int, size: int) -> Iterator[pa.RecordBatch]:
    """Yield `records` rows with values of `size` bytes. All batches share their values, because making them is not measured."""
    rows = min(records, max(1, min(ROWS, (16 << 20) // size)))
    random = np.random.default_rng(7)
    patterns = random.integers(ord("a"), ord("z"), (PATTERNS, 8), np.uint8)
    content = patterns[random.integers(0, PATTERNS, rows * size // 8 + 1)].ravel()[: rows * size]
    ends = np.arange(0, rows * size + 1, size, dtype=np.int64)
    values = pa.Array.from_buffers(
        pa.large_binary(), rows, [None, pa.py_buffer(ends.tobytes()), pa.py_buffer(content.tobytes())]
    )
    batch = pa.record_batch({"value": values})
    for first in range(0, records, rows):
        yield batch.slice(0, min(rows, records - first))
