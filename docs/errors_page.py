"""Makes docs/errors.md from the classes of errors, Kafka's error codes and the checks of rows; `docs/update.py` calls it.

What happened is said by the package: the docstring of a class, the advice of a code, and the messages that checks really give for
bad rows. What to do about each class is said here; a class without a line of its own here stops `make docs`.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping

import pyarrow as pa

from spark_producer import errors
from spark_producer.cli.entry import INTERRUPTED
from spark_producer.common.error_codes import Action, Code
from spark_producer.config import ProducerConfig
from spark_producer.errors import PyProducerError
from spark_producer.exactly_once.protocol.outcomes import RUNS_AGAIN, FailureKind
from spark_producer.kernel import MAX_HEADERS
from spark_producer.kernel.arrays import ArrowArray
from spark_producer.partitioner import describe_topic, make_partitioner
from spark_producer.producer.bad_rows import CLASS_BY_ERROR_CODE, BadRowClass
from spark_producer.producer.metadata_wait import invalid_topic_names
from spark_producer.producer.record_size import too_large
from spark_producer.record.columns import LAST_SECOND, ReadColumns, read_columns

PAGE = """# Errors

This page is made by `make docs` from the package.

All errors are in `spark_producer.errors`. In Spark look for the last line that names one of them. No message holds a secret.
[Secured clusters](security.md#what-you-see-and-what-to-do) and [exactly-once
writes](exactly_once_explained.md#what-you-see-and-what-to-do) have their own tables.

"""

CLASSES_SECTION = """## Exceptions

*Again*: the same write can succeed once the cause is gone. Some of its rows may be in the topic, unless it is [exactly
once](exactly_once.md). Producers themselves retry until `kafka.delivery.timeout.ms`.

| exception | what happened | again | what to do |
|---|---|---|---|
"""

ROWS_SECTION = """
## Rows that cannot be written

The first such row ends the write with a `RecordError` (`RecordTooLarge` for `size`), or goes to a [dead-letter
topic](dead_letters.md) if its class is one of `deadLetterClasses`. Examples:

| class | message |
|---|---|
"""

REFUSED_ROWS = """
Error codes of brokers that concern single rows:

| class | codes |
|---|---|
"""

SCHEMA_ROWS = """
`schema`: an [Avro schema](avro.md#which-schema) refuses the value or key.
"""

CODES_SECTION = """
## Error codes of brokers

The `code` of a `BrokerError`. If the column *producer* is empty, and for codes that are not in the table, the records or the
request fail, and the producer continues.

| | |
|---|---|
| retry | it sends again, until `kafka.delivery.timeout.ms`, or `kafka.max.block.ms` before a write |
| refresh | it also requests metadata |
| split | it sends smaller batches; a record alone fails |
| written | it counts the records as written |
| end | it ends, and all batches that it holds fail |

| code | producer | what to do |
|---|---|---|
"""

FAILURES_SECTION = """
## Kinds of `ExactlyOnceError`

`error.kind` is one of these, or empty for other errors. *Again*: a restarted streaming query repeats it on its own;
otherwise a person decides. [What to do](exactly_once_explained.md#what-you-see-and-what-to-do).

| kind | why the write stopped | again |
|---|---|---|
"""

SPARK_SECTION = """
## What Spark says itself

| what you see | what it is, and what to do |
|---|---|
"""

SPARK_SAYS = {
    "`DATA_SOURCE_NOT_FOUND`": "Spark's Python lacks the package: set `PYSPARK_PYTHON` before Spark starts "
    "([deploying](deploying.md#install-the-package)).",
    "`DATA_SOURCE_NOT_FOUND` after Ctrl-C in the `pyspark` shell, or in a thread of your own": "The calling thread has no "
    "session: `spark_producer.register(spark)`, then write again.",
    "`UNSUPPORTED_DATA_SOURCE_SAVE_MODE`": 'Add `.mode("append")`: it is not Spark\'s default. `Overwrite` is refused.',
    "`TaskKilledException`, `is aborting`, as a query is stopped": "The next start writes the interrupted micro-batch "
    "([streaming](streaming.md#what-a-restart-repeats)).",
}

EXIT_CODES_SECTION = f"""
## Exit codes

Of `pyproducer` and of the jobs:

| exit code | what it means | what to do |
|--:|---|---|
| 0 | done; or Ctrl-C ended `broker` or `tail`; or the reader of the output went away | |
| 1 | an error; of `check`: a write would fail | what the line on stderr says |
| 2 | bad arguments | `--help` after the command |
| {INTERRUPTED} | Ctrl-C | the line on stderr says what was left undone |
"""

NEVER, LATER = "", "yes"

ADVICE: dict[str, tuple[str, str]] = {
    "PyProducerError": (NEVER, ""),
    "ConfigError": (NEVER, "Correct the named [option](options.md)."),
    "SchemaError": (NEVER, "Rename, cast or drop the [column](columns.md), or make the columns with `as_records`."),
    "RecordError": (
        NEVER,
        "Correct the named row, or set [`deadLetterTopic`](dead_letters.md).",
    ),
    "RecordTooLarge": (
        NEVER,
        "Raise them and the topic's `max.message.bytes`, or make the row smaller.",
    ),
    "RegistryError": (
        LATER,
        "Check [`schema.registry.url`](avro.md#the-registry) and its login, from the driver.",
    ),
    "SchemaIncompatible": (
        NEVER,
        "Change the schema, the subject, or the subject's compatibility.",
    ),
    "RecordBatchError": (NEVER, "Correct the named fields."),
    "TooManyBadRows": (
        NEVER,
        "Correct the rows (the first are named), or raise the maximum.",
    ),
    "PartitionerError": (NEVER, "Correct the function in `kafka.partitioner.class`."),
    "CorruptRecord": (LATER, "Fetch again: if it stays so, the log is damaged."),
    "DataLoss": (
        NEVER,
        "Raise the retention of the topic, or read what is left with `failOnDataLoss` `false`.",
    ),
    "ProtocolError": (NEVER, "As `RemoteProtocolError`."),
    "LocalProtocolError": (NEVER, "Report this defect of pyproducer."),
    "RemoteProtocolError": (LATER, "Check that a Kafka broker listens there, and `kafka.security.protocol`."),
    "UnsupportedVersion": (
        NEVER,
        "[Upgrade the brokers](compatibility.md#versions), or leave the option out.",
    ),
    "ConnectionFailed": (LATER, "Check host, port, network and broker."),
    "SecurityError": (NEVER, "See [security](security.md#what-you-see-and-what-to-do)."),
    "AuthenticationFailed": (NEVER, "Check the [login](security.md#logins)."),
    "TlsFailed": (
        NEVER,
        "Check the [certificates](security.md#certificates), and that the listener speaks TLS.",
    ),
    "KafkaTimeout": (LATER, "Find the cause, or raise the named time."),
    "BrokersUnreachable": (
        LATER,
        "Check `kafka.bootstrap.servers` and the network with `pyproducer check`.",
    ),
    "MetadataTimeout": (LATER, "Create the topic or partition; check its leaders."),
    "BufferExhausted": (
        LATER,
        "Add partitions, or raise `kafka.buffer.memory` or `kafka.max.block.ms`: brokers are slower than rows.",
    ),
    "DeliveryTimeout": (
        LATER,
        "Check the partition's leader and replicas, or raise the timeout. The records may be in the topic.",
    ),
    "ProducerClosed": (NEVER, "Make a new `Producer`."),
    "IllegalState": (NEVER, "Correct the caller."),
    "TransactionAbortable": (
        LATER,
        "`abort_transaction()`, then [write the rows again](transactions.md).",
    ),
    "TransactionAborted": (LATER, "Write the rows again."),
    "TransactionTimeout": (LATER, "Repeat the call: it gets the result."),
    "CommitError": (NEVER, ""),
    "ExactlyOnceError": ("[kinds](#kinds-of-exactlyonceerror)", ""),
    "BrokerError": ("[codes](#error-codes-of-brokers)", ""),
    "RecordsRefused": (
        NEVER,
        "Correct `error.rows`, or set [`deadLetterTopic`](dead_letters.md).",
    ),
    "ProducerFenced": (
        NEVER,
        "Give each producer its own transactional id, or make a new one.",
    ),
    "TopicNotFound": (
        LATER,
        "Create the topic, or correct its name. If it was created again with fewer partitions, write the rows again.",
    ),
}
"""What to do about each class, and whether the same write can succeed without a change."""

ACTIONS = {
    Action.NONE: "",
    Action.RETRY: "retry",
    Action.RETRY | Action.REFRESH_METADATA: "refresh",
    Action.SPLIT: "split",
    Action.SUCCESS: "written",
    Action.FATAL: "end",
}


def errors_page() -> str:
    """The whole of docs/errors.md."""
    page = PAGE + CLASSES_SECTION + "".join(_class_rows(PyProducerError))
    page += ROWS_SECTION + "".join(f"| `{kind}` | {message} |\n" for kind, message in row_messages())
    page += REFUSED_ROWS + "".join(_refused_rows()) + SCHEMA_ROWS
    page += CODES_SECTION + "".join(_code_rows())
    page += FAILURES_SECTION + "".join(
        f"| {kind.name} | {kind.value} | {'yes' if kind in RUNS_AGAIN else 'no'} |\n" for kind in FailureKind
    )
    page += SPARK_SECTION + "".join(f"| {seen} | {advice} |\n" for seen, advice in SPARK_SAYS.items())
    return page + EXIT_CODES_SECTION


def classes() -> set[str]:
    """The names of all classes of errors."""
    return {name for name, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, PyProducerError)}


def _class_rows(kind: type[PyProducerError], depth: int = 0) -> Iterator[str]:
    """A row for a class, and below it those of its own kinds, in the order in which they are written."""
    again, advice = ADVICE[kind.__name__]
    happened = " ".join((inspect.getdoc(kind) or "").partition("\n\n")[0].split())
    yield f"| {'↳ ' * max(0, depth - 1)}`{kind.__name__}` | {happened} | {again} | {advice} |\n"
    for below in kind.__subclasses__():
        if below.__module__ == errors.__name__:
            yield from _class_rows(below, depth + 1)


def _code_rows() -> Iterator[str]:
    """Yield a row for each advice, at the lowest code that has it."""
    rows: dict[tuple[Action, str], list[str]] = {}
    for code in Code:
        if code is not Code.NONE:
            rows.setdefault((code.action, code.advice), []).append(f"{int(code)} `{code.name}`")
    for (action, advice), codes in rows.items():
        yield f"| {', '.join(codes)} | {ACTIONS[action]} | {advice} |\n"


def _refused_rows() -> Iterator[str]:
    for bad in BadRowClass:
        codes = ", ".join(f"`{code.name}` ({int(code)})" for code, of in CLASS_BY_ERROR_CODE.items() if of is bad)
        if codes:
            yield f"| `{bad}` | {codes} |\n"


def row_messages() -> list[tuple[BadRowClass, str]]:
    """What is said of each kind of bad row: each check finds one in an example."""
    found = [(BadRowClass.ROW, row.message) for example in EXAMPLES for row in _read(example).rejected]
    beyond = make_partitioner(CONFIG).reject(_read({"partition": pa.array([4])}).columns, [FOUR_PARTITIONS])
    found += [(BadRowClass.ROW, row.message) for row in beyond]
    large = too_large(_read({"value": pa.array(["v" * CONFIG.max_request_size])}).columns, CONFIG)
    found += [(BadRowClass.SIZE, row.message) for row in large]
    misnamed_rows = invalid_topic_names(_read({"topic": pa.array([""])}).columns)
    return found + [(BadRowClass.TOPIC, row.message) for row in misnamed_rows]


def _read(example: Mapping[str, ArrowArray]) -> ReadColumns:
    """The check of a row with one column that matters; the others are as they should be."""
    row = {"value": pa.array(["v"]), "topic": pa.array(["flights"]), **example}
    if "partition" in row:
        row["partition"] = row["partition"].cast(pa.int32())
    return read_columns(pa.RecordBatch.from_arrays(list(row.values()), list(row)), topic=None, now_ms=0)


def _headers(count: int, key: ArrowArray) -> ArrowArray:
    """A row with this number of headers of one key."""
    keys = pa.concat_arrays([key] * count)
    entries = pa.StructArray.from_arrays([keys, pa.nulls(count, pa.binary())], ["key", "value"])
    return pa.ListArray.from_arrays([0, count], entries)


NO_TEXT = pa.array([b"\xff"]).view(pa.string())
FOUR_PARTITIONS = describe_topic("flights", (1, 1, 1, 1))
CONFIG = ProducerConfig(bootstrap_servers="localhost:9092")
EXAMPLES: list[dict[str, ArrowArray]] = [
    {"topic": pa.nulls(1, pa.string())},
    {"topic": NO_TEXT},
    {"partition": pa.array([-1])},
    {"headers": _headers(MAX_HEADERS + 1, pa.array(["source"]))},
    {"headers": _headers(1, pa.nulls(1, pa.string()))},
    {"headers": _headers(1, NO_TEXT)},
    {"timestamp": pa.nulls(1, pa.timestamp("ms", "UTC"))},
    {"timestamp": pa.array([-1], pa.timestamp("ms", "UTC"))},
    {"timestamp": pa.array([LAST_SECOND + 1], pa.timestamp("s", "UTC"))},
]
"""A row for each check of columns, in their order."""
