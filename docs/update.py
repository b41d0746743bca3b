"""Writes docs/options.md, docs/metrics.md, docs/broker_metrics.md, docs/errors.md and the profiles in conf/ from the tables of
the package, and the picture of the rooms, docs/rooms.svg, from the contracts of the imports: `make docs`. It draws those of
docs/how_it_works.md, and brings the measured figures of docs/sizing.md up to date.

The words around the tables are here; the tables are made by the package, and the pictures by docs/rooms.py and docs/pictures/.
"""

from __future__ import annotations

from pathlib import Path

from docs.broker_metrics import broker_metrics_page
from docs.errors_page import errors_page
from docs.measured import with_measured_table
from docs.pictures.all import PICTURES
from docs.rooms import rooms_picture
from spark_producer.config import profiles, unsupported
from spark_producer.config.docs_table import render_markdown
from spark_producer.metrics import names, registry

ROOT = Path(__file__).resolve().parent.parent

OPTIONS_PAGE = """# Options

This page is made by `make docs` from the table in `spark_producer/config/options.py`. `pyproducer options` prints the same.

Options with the prefix `kafka.` are those of Kafka's producer, under its names; `Producer` takes them without the prefix.
The others belong to the sink. Times are in milliseconds, sizes in bytes. Letter case does not matter. An unknown option, a
bad value, or two options that contradict each other are one clear error on the driver, before any task starts.
[security.md](security.md) says which options of TLS and logins go together, with recipes for the usual platforms.

"""

PROFILES_SECTION = """
## Profiles

`.option("profile", "latency")`, or `Producer({"profile": "latency", …})`, sets several options at once. An option that is set
beside it wins. The folder `conf/` has the profiles as files, with a reason for each value (`conf/latency.properties` and so on).
A file of your own works as well, `.option("profile", "path/to/producer.properties")`: its names are those of Kafka's tools,
without the prefix `kafka.`.

"""

MEMORY_SECTION = """
## Memory of a worker

Beside its code (some 130 MiB with those of PySpark and Arrow) a Python worker takes `kafka.buffer.memory` at most, and up to
40 MiB for rows in hand, whatever the number of rows and partitions. All partitions share `buffer.memory`. With 1,000 of them a
batch is 16 KiB where they share 32 MiB, and up to 128 KiB where they share 256; few large ones cost brokers and workers less than
many small ones. A value that you set, itself or by a profile, holds exactly. Where none is set, `Producer` takes 32 MiB, and a
task of Spark half of what its worker can have, but at least 32 MiB and at most 256. That follows from Spark's configuration
alone, so every task of an application has the same:

| where | what a worker can have |
|---|---|
| `spark.executor.pyspark.memory` is set | that ÷ cores, less 659 MiB: it limits address space, threads and libraries included |
| `local[n]` | a quarter of the memory of the machine, or of its container, ÷ n, less 170 MiB |
| elsewhere | (the executor's memory overhead − the JVM's part) ÷ tasks at a time, less 170 MiB |

The overhead is `spark.executor.memoryOverhead`, or its factor times the heap, at least 384 MiB; the JVM's part of it a twentieth
of the heap, at least 256 MiB; 170 MiB are the worker's code and its rows in hand. So an executor of 8 GiB with 4 cores gives its
workers 256 MiB each where the factor is 0.4, as Kubernetes has it for Python, and 32 where it is 0.1, as elsewhere: set
`spark.executor.memoryOverheadFactor` to 0.4 if you write to many partitions. For as little memory as will do there is the profile
`small-memory`. The metric `buffer-total-bytes` says what a producer has.
"""

REFUSED_SECTION = """
## Options of Kafka that are not supported

These options are errors, with the reasons below. They are never silently ignored.

"""


METRICS_PAGE = f"""# Metrics

This page is made by `make docs` from the table in `spark_producer/metrics/names.py`.

A producer keeps what Kafka's Java producer keeps, under the same names, units and groups, and some more in a group of its own.
Where Java counts oddly, a metric of that name counts as Java does, so that dashboards can be compared, and `pyproducer-metrics`
has a twin that counts plainly:

| what Java counts | twin |
|---|---|
| `record-send-total`: records as often as they are sent | `record-delivered-total`: acknowledged, each once |
| `record-error-total`: a batch that expired in flight may count twice, a refused call counts 1 | `record-failed-total` |
| `record-size-avg`: upper bounds of the largest record of each batch | `record-bytes-avg`, `record-bytes-max` |
| `records-per-request-avg`: nodes that got no request count as 0 | `records-per-produce-request-avg` |
| `compression-rate-avg`: a small batch counts as much as a large one | `compression-ratio` |
| `produce-throttle-time-avg`: zeros included | `throttled-time-avg`, `-total` |

Which of them to look at when a write is slow: [a notebook](../notebooks/tuning.ipynb) turns the options, and draws the metrics.

## Windows

`Producer.metrics()` gives all values by (group, name, tags). Totals never go back. Rates, averages and maxima are those of the
last 30 to 90 seconds: a sample takes in values for 30 seconds (`metrics.sample.window.ms`), and counts for as long as its last
value is less than 60 seconds old (`metrics.num.samples` of them). A rate is divided by at least 30 seconds, so a young one reads
low, as in Java. Averages and maxima of nothing are NaN.

Percentiles come from histograms, of everything since the producer began; they are rounded up, by 6 % at most.

## A write in Spark

One Python worker runs many tasks, and windows know nothing of tasks. So a task reports its *lap*: the same metrics, but of the
time from its first row to its last acknowledgement, rates and totals included. The driver adds the laps up as the last column
says. Rates and levels count for the share of the whole write that their task took: those of tasks side by side add up, those
of tasks one after the other are averaged.

The committed write then appears in the log `pyproducer`, for people, and in the log `pyproducer.commit`, for programs: one line
of JSON with the offset ranges, counts, and every metric. Spark runs the commit in a process of its own, so the log is the way
to read it; with Spark 4.1 and newer, from the driver:

```python
spark.conf.set("spark.sql.pyspark.worker.logging.enabled", "true")  # first
commits = (
    spark.tvf.python_worker_logs()
    .where("logger = 'pyproducer.commit'")
    .select("msg")
)
commits.selectExpr(
    "get_json_object(msg, '$.write') as write",
    "get_json_object(msg, '$.records') as records",
    "get_json_object(msg, '$.ranges[0].last') as last_offset",
    "get_json_object(msg, "
    "'$.metrics.pyproducer-metrics.record-latency-p99') as latency_p99",
).show()
```

After an [exactly-once](exactly_once.md) write `$.exactly_once` has its `id`, the number of its `batch`, how many tasks went which
way (`inline`, `transactions`, `skipped`), and the milliseconds of the commit on the brokers (`commit_ms`).

## Bounds

The first {registry.MAX_NODES} nodes and {registry.MAX_TOPICS:,} topics have metrics of their own. All later
ones share the tag `{registry.OTHER_NODES}` or `{registry.OTHER_TOPICS}`; nothing is left out of the
producer's own numbers. A lap holds only what had an event.

## What they cost

Values are counted per batch, per request and per turn of the I/O loop, never per record. An event is a few additions to plain
numbers: there is no lock, no window to roll and no name to look up. Samples are closed when their time is over, and names are
resolved when somebody reads.

A write of 110-byte records to an embedded broker in another process took 2.5 % more CPU with metrics in batches of 262,144 bytes
(95 % interval 1.8 … 3.7 %), and 3.6 % more in batches of 16,384 bytes (2.9 … 4.5 %): the medians of 400 pairs of pieces of
200,000 records, one of each pair with metrics and one without. That is 3.7 ns a record, at most 5.4. Such a record took 610 ns of
CPU in Spark and its Python workers, of which the metrics are 0.6 %. Batches of 1,000,000 bytes, the default, have a quarter of
these events.

To begin a task's lap takes 0.04 ms and to read it 0.4 ms, in 2,137 bytes of commit message; with 1,000 topics
7.3 ms, 47.9 ms and 160,713 bytes. All these figures are of two cores that the broker shared.

Java's `app-info`, its `txn-prepare-time-ns-total` (KIP-939) and the connections by cipher are missing, because there is nothing
to count for them. The five other `txn-…-time-ns-total` are those of [the library's transactions](transactions.md): they count the
time in a call, also if it has failed. The tasks of an exactly-once write begin and end theirs otherwise, and add nothing there;
how long a commit took is the `commit_ms` above.

"""


def options_page() -> str:
    """The whole of docs/options.md."""
    options = OPTIONS_PAGE + render_markdown()
    options += PROFILES_SECTION + profiles.render_markdown() + MEMORY_SECTION
    return options + REFUSED_SECTION + unsupported.render_markdown()


def metrics_page() -> str:
    """The whole of docs/metrics.md."""
    return METRICS_PAGE + names.render_markdown()


def main() -> None:
    """Write them all."""
    for name in profiles.PROFILES:
        (ROOT / "conf" / f"{name}.properties").write_text(profiles.render_properties(name), encoding="utf-8")
    (ROOT / "docs" / "options.md").write_text(options_page(), encoding="utf-8")
    (ROOT / "docs" / "metrics.md").write_text(metrics_page(), encoding="utf-8")
    (ROOT / "docs" / "broker_metrics.md").write_text(broker_metrics_page(), encoding="utf-8")
    (ROOT / "docs" / "errors.md").write_text(errors_page(), encoding="utf-8")
    (ROOT / "docs" / "rooms.svg").write_text(rooms_picture(), encoding="utf-8")
    for name, picture in PICTURES.items():
        (ROOT / "docs" / name).write_text(picture().svg(), encoding="utf-8")
    sizing, benchmarks = ROOT / "docs" / "sizing.md", ROOT / "docs" / "benchmarks.md"
    page = with_measured_table(sizing.read_text(encoding="utf-8"), benchmarks.read_text(encoding="utf-8"))
    sizing.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
