"""Writes docs/options.md, docs/metrics.md, docs/broker_metrics.md, docs/errors.md and the profiles in conf/ from the tables of
the package, and the picture of the packages, docs/packages.svg, from the contracts of the imports: `make docs`. It draws those of
docs/how_it_works.md, and brings the measured figures of docs/sizing.md up to date.

The text around the tables is here; the tables are made by the package, and the pictures by docs/packages.py and docs/pictures/.
"""

from __future__ import annotations

from pathlib import Path

from docs.broker_metrics import broker_metrics_page
from docs.errors_page import errors_page
from docs.measured import with_measured_table
from docs.packages import packages_picture
from docs.pictures.all import PICTURES
from spark_producer.config import profiles, unsupported, unsupported_reads
from spark_producer.config.docs_table import render_markdown, render_reads, shared_names
from spark_producer.metrics import metric_table, registry
from spark_producer.producer import io_thread
from spark_producer.telemetry import points, pusher, subscription

ROOT = Path(__file__).resolve().parent.parent

OPTIONS_PAGE = """# Options

This page is made by `make docs` from the tables in `spark_producer/config`. `pyproducer options` prints the same.

`Producer` takes Kafka's options without the prefix `kafka.`. Times are in milliseconds, sizes in bytes; letter case does not
matter. An unknown option, a bad value, or a contradiction is an error on the driver, before any task starts.
[Security](security.md) says which options of TLS and logins go together.

## Options of writes

"""

READS_SECTION = """
## Options of reads

`spark.read` and `spark.readStream` take the options of Spark's Kafka source by its names, and some more. An option that would
have no effect is an error; a warning if Spark's source takes it. From the table above reads take all of security (`kafka.ssl.…`,
`kafka.sasl.…`, `secretsAllow` …), of connections to a Schema Registry (`schema.registry.…`, `basic.auth.user.info`,
`bearer.auth.…`), and these:

{shared}.

`subscribePattern` is found anywhere in the name of a topic, as in Spark since 3.4: write `^orders-.*$` for whole names. It is a
regular expression of Java's that Python reads alike; what one of them lacks or reads differently (`\\Q…\\E`, `\\p{{…}}`, named
groups, possessive quantifiers, classes in classes) is an error that names it.

"""

PROFILES_SECTION = """
## Profiles

`.option("profile", "latency")`, or `Producer({"profile": "latency", …})`, sets several options. `conf/` has the profiles as
files, with reasons. Your own file, `.option("profile", "path/to/producer.properties")`, has names without `kafka.`.

A read takes a file too, and of these profiles `event-hubs`: the others are about writes. One file can serve both: a read leaves
out its options of writes, and a write those of reads.

"""

MEMORY_SECTION = """
## Memory of a worker

A Python worker takes about 130 MiB for code, up to 40 MiB for rows in hand, and at most `kafka.buffer.memory`, whatever the
number of rows and partitions. By default that is 32 MiB for `Producer`, and in Spark half of what a worker can have, between 32
and 256 MiB:

| where | what a worker can have |
|---|---|
| `spark.executor.pyspark.memory` is set | that ÷ cores, less 659 MiB of address space for threads and libraries |
| `local[n]` | a quarter of the memory of the machine or container ÷ n, less 170 MiB |
| elsewhere | (the executor's memory overhead − the JVM's part) ÷ tasks at a time, less 170 MiB |

The overhead is `spark.executor.memoryOverhead`, or its factor times the heap, at least 384 MiB; the JVM's part is a twentieth of
the heap, at least 256 MiB. An executor of 8 GiB with 4 cores gives each worker 256 MiB where the factor is 0.4 (Kubernetes for
Python), and 32 where it is 0.1: raise `spark.executor.memoryOverheadFactor` if you write to many partitions
([sizing](sizing.md)).
"""

REFUSED_SECTION = """
## Options of Kafka that are not supported

These options are errors, never silently ignored.

"""

REFUSED_READS_SECTION = """
In reads the same options of security and Java classes are errors, those of writes, and these:

"""


METRICS_PAGE = f"""# Metrics

This page is made by `make docs` from the table in `spark_producer/metrics/metric_table.py`.

A producer keeps the metrics of Kafka's Java producer, with the same names, units and groups, and its own. Where Java counts
oddly, `pyproducer-metrics` has a twin:

| what Java counts | twin |
|---|---|
| `record-send-total`: records as often as they are sent | `record-delivered-total`: acknowledged, each once |
| `record-error-total`: a batch that expired in flight may count twice, a refused call counts 1 | `record-failed-total` |
| `record-size-avg`: upper bounds of the largest record of each batch | `record-bytes-avg`, `record-bytes-max` |
| `records-per-request-avg`: nodes that got no request count as 0 | `records-per-produce-request-avg` |
| `compression-rate-avg`: a small batch counts as much as a large one | `compression-ratio` |
| `produce-throttle-time-avg`: zeros included | `throttled-time-avg`, `-total` |

[A notebook](../notebooks/tuning.ipynb) shows which of them to look at when a write is slow.

## Windows

`Producer.metrics()` gives all values by (group, name, tags). Totals never go back. Rates, averages and maxima are those of the
last 30 to 90 seconds (`metrics.sample.window.ms`, `metrics.num.samples`). A rate is per second of its unit below, and divided by
at least 30 seconds, so a young one reads low, as in Java. Averages and maxima of nothing are NaN. Percentiles are since the
start, rounded up by 6 % at most.

## A write in Spark

A task reports its metrics from its first row to its last acknowledgement; the driver adds them up:

| ends in | over the tasks of a write |
|---|---|
| `-total` | sum |
| `-rate`, `-ratio`, levels such as `connection-count` | those of simultaneous tasks add, weighted by time |
| `-avg` | weighted by counts |
| `-max`, `metadata-age` | maximum |
| `-p50`, `-p99`, `-p999` | of all values |

A committed write is in the log `pyproducer` as text, and in `pyproducer.commit` as a line of JSON with offset ranges, counts and
every metric. With Spark 4.1 and newer, from the driver:

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

After an [exactly-once](exactly_once.md) write `$.exactly_once` has `id`, `batch`, the tasks of each path (`inline`,
`transactions`, `skipped`), and the milliseconds of the commit (`commit_ms`).

## Pushed to brokers

Kafka's brokers can collect the metrics of their clients (KIP-714): those that have a plugin, a `MetricsReporter` with
`ClientTelemetry`, and a subscription:

```console
$ bin/kafka-client-metrics.sh --bootstrap-server localhost:9092 --alter \\
    --generate-name --interval 60000 --metrics org.apache.kafka.producer.
```

Producers and readers then push, every `interval`, the metrics whose names begin with one of the prefixes. Nothing is sent to
brokers without such a plugin, by a client that lives for less than {pusher.FIRST_REQUEST_S:g} seconds, or with
`kafka.enable.metrics.push=false`.

* **Names**: `org.apache.kafka.producer.record.queue.time.avg`, `…producer.node.…` and `…producer.topic.…` for the groups below,
  `pyproducer.…` for our own; of a reader `org.apache.kafka.consumer.…`, `…consumer.node.…` and `…consumer.fetch.manager.…`, the
  last also of each topic.
* **Lag**: `…consumer.fetch.manager.records.lag.max`, the largest of the partitions of the reader or of a topic: the offsets from
  the last fetched one to the end. Spark reads up to an end that it has planned: what came to the partition since is lag, too.
* **Attributes**: of a client `client_rack`, a producer's `transactional_id`, a reader's `group_id`; of a value `node_id` or
  `topic`.
* **Form**: OpenTelemetry's MetricsData. Totals are sums (cumulative, or deltas, as the broker wants), all else gauges; compressed
  by the broker's first choice that is installed.
* **Client instance id**: `Producer.client_instance_id(timeout)`; in the log `pyproducer` with the subscription.
* **At the end** `close` sends a last push, marked as such, and waits up to {io_thread.LAST_PUSH_S:g} s for its response, within
  its own timeout. Spark kills its Python workers, which then send none.

A push uses a connection that is open already, and waits for nothing. A reader pushes while it reads, since it has no thread
between two tasks. What a broker may ask for is bounded: {subscription.MIN_INTERVAL_S:g} to {subscription.MAX_INTERVAL_S:g} s
between two pushes, and longer if they would take over 1 % of the time of the client's thread; {points.MAX_POINTS:,} values
and 1 MiB in a push; {subscription.MAX_PREFIXES:,} prefixes, in a response of 64 KiB. Values of single topics and nodes are
left out first. A refused codec is not used again, a push that was too large is halved, and a subscription that is unknown is
requested again; any other error, or three lost responses in a row, ends the pushes of the client with a warning.

## Elsewhere

PySpark's Python data sources cannot set metrics of Spark: the page of a stage shows *data sent to Python workers* and *data
returned from Python workers*, and `StreamingQueryProgress` the rows. Offsets, counts and everything below come from
[reports](reports.md).

## Bounds and costs

Nodes after the first {registry.MAX_NODES} share the tag `{registry.OTHER_NODES}`, topics after {registry.MAX_TOPICS:,}
`{registry.OTHER_TOPICS}`.

Nothing is counted per record. A write of 110-byte records took 2.5 % more CPU with metrics in batches of 262,144 bytes, and 3.6 %
more in batches of 16,384 bytes: 3.7 ns a record, 0.6 % of a write in Spark. A task takes 0.04 ms to begin them, 0.4 ms to read
them, and 2,137 bytes of commit message; with 1,000 topics 7.3 ms, 47.9 ms and 160,713 bytes.

Missing are Java's `app-info`, `txn-prepare-time-ns-total` (KIP-939) and connections by cipher. `txn-…-time-ns-total` are of
[`Producer`](transactions.md) alone.

"""


def options_page() -> str:
    """The whole of docs/options.md."""
    shared = ", ".join(f"`{name}`" for name in shared_names())
    options = OPTIONS_PAGE + render_markdown() + READS_SECTION.format(shared=shared) + render_reads()
    options += PROFILES_SECTION + profiles.render_markdown() + MEMORY_SECTION
    options += REFUSED_SECTION + unsupported.render_markdown()
    return options + REFUSED_READS_SECTION + unsupported_reads.render_markdown()


def metrics_page() -> str:
    """The whole of docs/metrics.md."""
    return METRICS_PAGE + metric_table.render_markdown()


def main() -> None:
    """Write them all."""
    for name in profiles.PROFILES:
        (ROOT / "conf" / f"{name}.properties").write_text(profiles.render_properties(name), encoding="utf-8")
    (ROOT / "docs" / "options.md").write_text(options_page(), encoding="utf-8")
    (ROOT / "docs" / "metrics.md").write_text(metrics_page(), encoding="utf-8")
    (ROOT / "docs" / "broker_metrics.md").write_text(broker_metrics_page(), encoding="utf-8")
    (ROOT / "docs" / "errors.md").write_text(errors_page(), encoding="utf-8")
    (ROOT / "docs" / "packages.svg").write_text(packages_picture(), encoding="utf-8")
    for name, picture in PICTURES.items():
        (ROOT / "docs" / name).write_text(picture().svg(), encoding="utf-8")
    sizing, benchmarks = ROOT / "docs" / "sizing.md", ROOT / "docs" / "benchmarks.md"
    page = with_measured_table(sizing.read_text(encoding="utf-8"), benchmarks.read_text(encoding="utf-8"))
    sizing.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
