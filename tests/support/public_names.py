"""The names that users may rely on, one a line: what docs/stability.md promises for 1.x.

`python -m tests.support.public_names` writes them to tests/public_names.txt. A line that is gone from there breaks a promise.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import inspect
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from spark_producer import errors
from spark_producer.broker.coordinator import entries
from spark_producer.broker.storage import state_file
from spark_producer.broker.storage.segments import checkpoint
from spark_producer.broker.storage.tiered import catalog, entry_log_format
from spark_producer.broker.storage.tiered.journal import records
from spark_producer.cli.entry import COMMANDS, INTERRUPTED, OLD_COMMANDS, parser_of
from spark_producer.common.cluster import ProducerIdAndEpoch, TransactionVersion
from spark_producer.config import CONSUMER_FIELDS, KAFKA_FIELDS, SINK_FIELDS, SOURCE_FIELDS, data_source_name, profiles
from spark_producer.config.control_topics import DEFAULT_CONTROL_TOPIC
from spark_producer.config.docs_table import option_fields
from spark_producer.config.registry_table import READ_ONLY_REGISTRY_FIELDS, REGISTRY_FIELDS
from spark_producer.datasource import follow
from spark_producer.datasource.read.columns import COLUMNS as READ_COLUMNS
from spark_producer.datasource.write.dead_letters import records as dead_records
from spark_producer.datasource.write.driver.commit import ReportedWrite
from spark_producer.datasource.write.driver.exactly_once_write import _summary
from spark_producer.datasource.write.driver.schema import COLUMNS as WRITE_COLUMNS
from spark_producer.datasource.write.driver.write_reports import report_of_write
from spark_producer.exactly_once import names
from spark_producer.exactly_once.cluster import record_json
from spark_producer.exactly_once.protocol.control_record import Status
from spark_producer.exactly_once.protocol.outcomes import RUNS_AGAIN, FailureKind
from spark_producer.exactly_once.protocol.task_messages import InlineRows, WriteHandle
from spark_producer.metrics import OffsetRange, WriteReport
from spark_producer.metrics.metric_table import METRICS
from spark_producer.producer.bad_rows import BadRowClass

LIST = Path(__file__).resolve().parents[1] / "public_names.txt"
MODULES = ("spark_producer", "spark_producer.broker", "spark_producer.legacy_formats", "spark_producer.schemas")
"""The modules whose `__all__` is public. All of `spark_producer.errors` is, too."""
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def public_names() -> list[str]:
    """Return the lines, sorted within their sections."""
    sections = (
        _options(), _profiles(), _columns(), _errors(), _exit_codes(), _commands(), _reports(), _metrics(),
        _dead_letters(), _exactly_once(), _broker_directories(), _python(),
    )  # fmt: skip
    return [line for section in sections for line in sorted(section)]


def _options() -> Iterator[str]:
    """Yield the options of reads and writes with their defaults, values and other names."""
    rows: dict[str, dataclasses.Field[Any]] = {
        **SINK_FIELDS,
        **SOURCE_FIELDS,
        **REGISTRY_FIELDS,
        **READ_ONLY_REGISTRY_FIELDS,
    }
    kafka = {**CONSUMER_FIELDS, **KAFKA_FIELDS}
    rows |= {data_source_name(name): field for name, field in kafka.items()}
    for option in option_fields():
        row = rows[str(option["name"])].metadata["option"]
        used = "+".join(way for way in ("writes", "reads") if option[way])
        default = "required" if option["required"] else json.dumps(option["default"])
        others = [f"values={','.join(row.choices)}"] if row.choices else []
        others += [f"also={','.join(row.aliases)}"] if row.aliases else []
        others += [f"formerly={','.join(row.former_names)}"] if row.former_names else []
        yield " ".join(["option", str(option["name"]), used, f"default={default}", *others])


def _profiles() -> Iterator[str]:
    for name in profiles.PROFILES:
        yield f"profile {name}"


def _columns() -> Iterator[str]:
    for name, (_, description) in WRITE_COLUMNS.items():
        yield f"column written {name}: {description}"
    for name, kind in READ_COLUMNS.items():
        yield f"column read {name}: {kind.simpleString()}"


def _errors() -> Iterator[str]:
    """Yield the classes with their bases, and the kinds of `ExactlyOnceError` with whether a restart runs them again."""
    for name, kind in inspect.getmembers(errors, inspect.isclass):
        if kind.__module__ == errors.__name__:
            bases = ", ".join(base.__name__ for base in kind.__bases__)
            fields = "".join(f" .{field}" for field in sorted(inspect.get_annotations(kind)))
            yield f"error {name}({bases}){fields}"
    for failure in FailureKind:
        yield f"error ExactlyOnceError kind={failure.name} again={str(failure in RUNS_AGAIN).lower()}"


def _exit_codes() -> Iterator[str]:
    for code, meaning in ((0, "done"), (1, "an error"), (2, "bad arguments"), (INTERRUPTED, "Ctrl-C")):
        yield f"exit code {code}: {meaning}"


def _commands() -> Iterator[str]:
    """Yield the arguments of all commands, with their values; and the old names of commands."""
    for old, new in OLD_COMMANDS.items():
        yield f"command {old} = {new}"
    yield from _arguments("pyproducer", parser_of(COMMANDS))


def _arguments(command: str, parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, below in action.choices.items():
                yield from _arguments(f"{command} {name}", below)
        else:
            values = f" values={','.join(map(str, action.choices))}" if action.choices else ""
            yield f"command {command} {', '.join(action.option_strings) or action.dest}{values}"


def _reports() -> Iterator[str]:
    """Yield the columns of `Reports.to_frame`, and the keys of a report as JSON."""
    for column in re.split(r", (?![^<]*>)", follow.FRAME):
        yield f"report column {column}"
    for field in dataclasses.fields(follow.Written):
        yield f"report field {field.name}: {field.type}"
    for name in WriteReport._fields:
        yield f"report field report.{name}"
    yield from (f"report key {key}" for key in _keys(_sample_report()))
    yield "report file <query id>-<number of eight digits>.json"


def _sample_report() -> dict[str, object]:
    """Return a report with a value everywhere; the names of metrics have lines of their own."""
    range_, metrics = OffsetRange(0, 0, 1), SimpleNamespace(seconds=1.0, values=dict)
    handle = WriteHandle("sink", "", ProducerIdAndEpoch(0, 0), TransactionVersion.IMPLICIT, None)
    reported = ReportedWrite(
        WriteReport({("t", 0): range_}, dead_letters={("d", 0): range_}),
        cast(Any, SimpleNamespace(snapshot=lambda: metrics)),
        _summary([InlineRows(handle, "", 0, (), 0)]) | {"commit_ms": 0.0},
    )
    return report_of_write(reported, [], "batch write", None, "broker:9092") | {"query_id": None}


def _keys(value: object, path: str = "") -> Iterator[str]:
    """Yield the paths of all keys in nested values."""
    if isinstance(value, dict):
        for key, below in value.items():
            yield f"{path}{key}"
            yield from _keys(below, f"{path}{key}.")
    elif isinstance(value, list):
        for below in value:
            yield from _keys(below, f"{path.removesuffix('.')}[].")


def _metrics() -> Iterator[str]:
    for metric in METRICS:
        yield f"metric {metric.group} {metric.name}: {metric.unit}"


def _dead_letters() -> Iterator[str]:
    """Yield the headers of dead letters, and the classes of bad rows."""
    source = inspect.getsource(dead_records._error_headers)
    for name in re.findall(r'^ +"([a-z.]+)":', source, re.MULTILINE):
        yield f"dead letter header {dead_records.PREFIX}{name}"
    for part in ("value", "key"):
        for what in ("bytes", "sha256", "head"):
            yield f"dead letter header {dead_records.PREFIX}{part}.{what}"
    for kind in BadRowClass:
        yield f"dead letter class {kind.value}"


def _exactly_once() -> Iterator[str]:
    yield f"control topic {DEFAULT_CONTROL_TOPIC}"
    yield f"transactional id of a sink's driver {names.control_id('<sink>')}"
    yield f"transactional id of a task {names.task_prefix('<sink>')}<32 hexadecimal digits>.<number>"
    yield f"control record key {record_json.key_of('<sink>').decode()}, parts {record_json.part_key('<sink>', 1).decode()}"
    for version, forms in record_json._FIELDS.items():
        for fields in forms:
            yield f"control record version {version}: {', '.join(sorted(fields))}"
    yield f"control record version that is written: {record_json.VERSION}"
    for status in Status:
        yield f"control record status {status.value}"


def _broker_directories() -> Iterator[str]:
    yield f"broker directory {state_file._NAME} format {state_file._FORMAT}"
    yield f"broker directory coordinator.log format {entries.FORMAT}: {', '.join(entries._CLASSES)}"
    yield f"broker directory segments checkpoint format {checkpoint._FORMAT}"
    yield f"broker directory tiered catalog format {catalog._FORMAT}, read from {catalog._WITHOUT_DIRECTORIES} on"
    yield f"broker directory tiered journal {records.MAGIC!r}"
    yield f"broker directory tiered entry log {entry_log_format._MAGIC!r}"


def _python() -> Iterator[str]:
    """Yield the public functions and classes with their signatures."""
    for module in MODULES:
        for name in importlib.import_module(module).__all__:
            found = getattr(importlib.import_module(module), name)
            if inspect.isclass(found):
                yield from _class(f"{module}.{name}", found)
            elif callable(found):
                yield f"python {module}.{name}{_signature(found)}"
            else:
                yield f"python {module}.{name}"


def _class(name: str, kind: type) -> Iterator[str]:
    """Yield a class with its public methods, properties and fields, also those that it inherits from this package."""
    if kind.__name__ in ("ProducerConfig",):  # its fields are the options
        yield f"python class {name}"
        return
    yield f"python class {name}{_signature(kind)}"
    fields: Iterable[str] = getattr(kind, "__dataclass_fields__", getattr(kind, "_fields", ()))
    for field in fields:
        yield f"python {name}.{field}"
    members: Mapping[str, Any] = {
        member: found
        for base in reversed(kind.__mro__)
        if base.__module__.startswith("spark_producer")
        for member, found in vars(base).items()
        if not member.startswith("_") and member not in fields
    }
    for member, found in members.items():
        if isinstance(found, property):
            yield f"python {name}.{member} (property)"
        elif isinstance(found, classmethod | staticmethod):
            yield f"python {name}.{member}{_signature(found.__func__)}"
        elif inspect.isfunction(found):
            yield f"python {name}.{member}{_signature(found)}"


def _signature(found: Any) -> str:
    """Return the parameters in a form that is the same in each version of Python."""
    signature = inspect.signature(found)
    parts, is_keyword = [], False
    for each in signature.parameters.values():
        if each.kind is each.KEYWORD_ONLY and not is_keyword:
            is_keyword = True
            parts.append("*")
        star = "*" if each.kind is each.VAR_POSITIONAL else "**" if each.kind is each.VAR_KEYWORD else ""
        is_keyword = is_keyword or star == "*"
        default = "" if each.default is each.empty else f" = {_ADDRESS.sub('', repr(each.default))}"
        parts.append(f"{star}{each.name}{_annotation(': ', each.annotation)}{default}")
    return f"({', '.join(parts)}){_annotation(' -> ', signature.return_annotation)}"


def _annotation(before: str, found: Any) -> str:
    if found is inspect.Signature.empty or found is None:
        return ""
    return before + (found if isinstance(found, str) else getattr(found, "__forward_arg__", None) or found.__name__)


if __name__ == "__main__":
    LIST.write_text("\n".join(public_names()) + "\n", encoding="utf-8")
