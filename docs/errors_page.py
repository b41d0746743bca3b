"""Makes docs/errors.md from the classes of errors, Kafka's error codes and the checks of rows; `docs/update.py` calls it.

What happened is told by the package: the docstring of a class, the advice of a code, and the messages that checks really give for
bad rows. What to do about each class is told here; a class without a line of its own here stops `make docs`.
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
from spark_producer.producer.checks import too_large
from spark_producer.producer.metadata_wait import invalid_topic_names
from spark_producer.record.columns import LAST_SECOND, ReadColumns, read_columns

PAGE = """# Errors

This page is made by `make docs` from the package.

A message says what failed, why, and what to do, and never holds a secret. All errors share the root
`spark_producer.errors.PyProducerError`. In Spark look for the last line that names one of these classes. What the driver can find
out, it says before any task starts. [Secured clusters](security.md#what-you-see-and-what-to-do) and [exactly-once
writes](exactly_once_explained.md#what-you-see-and-what-to-do) have their own tables.

"""

CLASSES_SECTION = """## Exceptions

*Again*: the same write can succeed unchanged once the cause is gone. Producers retry until `kafka.delivery.timeout.ms`. Before
you run a batch write again: some rows may be in the topic, unless it is [exactly once](exactly_once.md).

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

| class | error codes |
|---|---|
"""

SCHEMA_ROWS = """
The class `schema` is that of values and keys that their Avro schema refuses: [Avro](avro.md#which-schema).
"""

CODES_SECTION = """
## Error codes of brokers

A broker's refusal is a `BrokerError` with one of these as `code`. An unknown code is shown by its number, and not retried. What a
producer does:

| | |
|---|---|
| fail | it fails the records, or the request, and goes on |
| retry | it sends again, until `kafka.delivery.timeout.ms`, or `kafka.max.block.ms` before a write |
| refresh | it requests metadata, and sends again |
| split | it sends smaller batches; a record alone fails |
| written | it counts the records as written |
| end | the producer ends, with all that it holds |

| code | name | producer | what to do |
|---|---|---|---|
"""

FAILURES_SECTION = """
## Kinds of `ExactlyOnceError`

`error.kind` is one of these, or empty if the write was not judged. A restarted streaming query runs again by itself. [What to
do](exactly_once_explained.md#what-you-see-and-what-to-do).

| kind | why the write goes no further | again |
|---|---|---|
"""

SPARK_SECTION = """
## What Spark says itself

| what you see | what it is, and what to do |
|---|---|
"""

SPARK_SAYS = {
    "`DATA_SOURCE_NOT_FOUND`": "Spark looked with a Python that does not have the package: set `PYSPARK_PYTHON` to the one that "
    "has it, before Spark starts ([deploying](deploying.md#install-the-package)).",
    "`DATA_SOURCE_NOT_FOUND` after Ctrl-C in the `pyspark` shell, or in a thread of your own": "Spark looks in the session of "
    "the thread that calls it, and that one has none: `spark_producer.register(spark)`, then write again.",
    "`UNSUPPORTED_DATA_SOURCE_SAVE_MODE`": 'Add `.mode("append")`: it is the only mode that a topic has, and not Spark\'s '
    "default. `Overwrite`, which Spark names beside it, is refused.",
    "`TaskKilledException`, `is aborting`, as a query is stopped": "It was in the middle of a micro-batch, which is written at "
    "the next start ([streaming](streaming.md#what-a-restart-repeats)).",
}

EXIT_CODES_SECTION = f"""
## Exit codes

Of `pyproducer` and of the jobs:

| exit code | what it means | what to do |
|--:|---|---|
| 0 | done; or Ctrl-C ended a command that has no other end (`broker`, `tail`); or the reader of its output went away | |
| 1 | an error, which is one line on stderr; of `check`: a write would fail | what the line says |
| 2 | bad arguments | `--help` after the command |
| {INTERRUPTED} | Ctrl-C came before the command was done | the line on stderr says what was left undone |
"""

NEVER, LATER = "no", "yes"

ADVICE: dict[str, tuple[str, str]] = {
    "PyProducerError": (NEVER, "What the message says. One of the classes below says more."),
    "ConfigError": (NEVER, "Correct the [option](options.md) that is named."),
    "SchemaError": (NEVER, "Rename, cast or drop the [column](columns.md), or make the columns with `as_records`."),
    "RecordError": (
        NEVER,
        "Correct the row that is named, or set `deadLetterTopic` ([dead letters](dead_letters.md)).",
    ),
    "RecordTooLarge": (
        NEVER,
        "Raise `kafka.max.request.size`, `kafka.buffer.memory` and the topic's `max.message.bytes`, or make the row smaller.",
    ),
    "RegistryError": (
        LATER,
        "Check `schema.registry.url` and its login, from the driver ([Avro](avro.md#the-registry)).",
    ),
    "SchemaIncompatible": (
        NEVER,
        "Change the schema so that it is compatible, or change the compatibility of the subject, or take another subject.",
    ),
    "RecordBatchError": (NEVER, "Of the library's own parts: correct the fields that are named."),
    "TooManyBadRows": (
        NEVER,
        "Correct the rows: the first ones are named. Or raise `maxBadRecords` or `maxBadRecordsRatio`.",
    ),
    "PartitionerError": (NEVER, "Correct the function in `kafka.partitioner.class`."),
    "CorruptRecord": (LATER, "Fetch the bytes again. If they stay so, the log or the file is damaged."),
    "ProtocolError": (NEVER, "Check that what listens there is a Kafka broker, and `kafka.security.protocol`."),
    "LocalProtocolError": (NEVER, "This is a defect of pyproducer: report it."),
    "RemoteProtocolError": (LATER, "Check that what listens there is a Kafka broker, and `kafka.security.protocol`."),
    "UnsupportedVersion": (
        NEVER,
        "Upgrade the brokers ([versions](compatibility.md#versions)), or leave the option out.",
    ),
    "ConnectionFailed": (LATER, "Check host and port, the network, and whether the broker runs."),
    "SecurityError": (NEVER, "[What you see, and what to do](security.md#what-you-see-and-what-to-do)."),
    "AuthenticationFailed": (NEVER, "Check mechanism, user and password ([logins](security.md#logins))."),
    "TlsFailed": (
        NEVER,
        "Check the [certificates](security.md#certificates), and whether the listener speaks TLS.",
    ),
    "KafkaTimeout": (LATER, "Find out why it takes so long, or raise the time that is named."),
    "BrokersUnreachable": (
        LATER,
        "Check `kafka.bootstrap.servers`, the network and the brokers: `pyproducer check` asks each of them.",
    ),
    "MetadataTimeout": (LATER, "Create the topic, or give it the partition; look whether it has leaders."),
    "BufferExhausted": (
        LATER,
        "Rows come faster than brokers take them. More partitions, a larger `kafka.buffer.memory` or `kafka.max.block.ms` help.",
    ),
    "DeliveryTimeout": (
        LATER,
        "Look whether the partition has a leader and enough replicas, or raise `kafka.delivery.timeout.ms`. The records may be "
        "in the topic.",
    ),
    "ProducerClosed": (NEVER, "Make a new `Producer`: one that is closed stays so."),
    "IllegalState": (NEVER, "Correct the caller: the message says what it did, and what comes first."),
    "TransactionAbortable": (
        LATER,
        "`abort_transaction()`, then write the rows again ([transactions](transactions.md)).",
    ),
    "TransactionAborted": (LATER, "Write the rows again, in a new transaction."),
    "TransactionTimeout": (LATER, "Make the same call again: it gets the result."),
    "CommitError": (
        NEVER,
        "What the message says: some tasks wrote nothing, or are of another version of the package.",
    ),
    "ExactlyOnceError": ("see [its kinds](#kinds-of-exactlyonceerror)", "What the message says."),
    "BrokerError": ("see [its codes](#error-codes-of-brokers)", "What its code says."),
    "RecordsRefused": (
        NEVER,
        "Correct the rows in `error.rows`, or set `deadLetterTopic` ([dead letters](dead_letters.md)).",
    ),
    "ProducerFenced": (
        NEVER,
        "Give each running producer a transactional id of its own. If there is one alone, make it anew.",
    ),
    "TopicNotFound": (
        LATER,
        "Create the topic, or correct its name. If it was deleted and created again with fewer partitions while it was written "
        "to, write the rows again: they go to the partitions that there are.",
    ),
}
"""What to do about each class, and whether the same write can succeed without a change."""

ACTIONS = {
    Action.NONE: "fail",
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
    page += CODES_SECTION + "".join(_code_row(code) for code in Code if code is not Code.NONE)
    page += FAILURES_SECTION + "".join(
        f"| {kind.name} | {kind.value} | {'yes' if kind in RUNS_AGAIN else 'no: a person decides'} |\n"
        for kind in FailureKind
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


def _code_row(code: Code) -> str:
    return f"| {int(code)} | `{code.name}` | {ACTIONS[code.action]} | {code.advice} |\n"


def _refused_rows() -> Iterator[str]:
    for bad in BadRowClass:
        codes = ", ".join(f"`{code.name}` ({int(code)})" for code, of in CLASS_BY_ERROR_CODE.items() if of is bad)
        if codes:
            yield f"| `{bad}` | {codes} |\n"


def row_messages() -> list[tuple[BadRowClass, str]]:
    """What is said of each kind of bad row: each check finds one in an example, and tells it."""
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
    """A row with so many headers of one key."""
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
