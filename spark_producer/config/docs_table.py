"""The tables of options for people: on the command line and in docs/options.md."""

from __future__ import annotations

import dataclasses

from spark_producer.config import CONSUMER_FIELDS, KAFKA_FIELDS, SINK_FIELDS, SOURCE_FIELDS, Option, data_source_name
from spark_producer.config.connection_table import SECURITY_FIELDS
from spark_producer.config.option import INT32_MAX, INT64_MAX
from spark_producer.config.registry_table import READ_ONLY_REGISTRY_FIELDS, REGISTRY_FIELDS
from spark_producer.config.unsupported import KAFKA_PREFIX


def option_rows() -> list[tuple[str, str, str]]:
    """Return (name, default, documentation) of every option of writes, sink options first, in the order of the table."""
    rows = [_row(name, field) for name, field in (SINK_FIELDS | REGISTRY_FIELDS).items()]
    return rows + [_row(data_source_name(name), field) for name, field in KAFKA_FIELDS.items()]


def read_rows() -> list[tuple[str, str, str]]:
    """Return the same for the options of reads, without those that mean the same in writes (`shared_names`)."""
    own = [_row(name, field) for name, field in (SOURCE_FIELDS | READ_ONLY_REGISTRY_FIELDS).items()]
    return own + [
        _row(data_source_name(name), field) for name, field in CONSUMER_FIELDS.items() if not _is_shared(name)
    ]


def shared_names() -> list[str]:
    """Return the names of the options of connections that writes and reads share, without those of security."""
    names = (name for name in CONSUMER_FIELDS if name not in SECURITY_FIELDS and _is_shared(name))
    return [data_source_name(name) for name in names]


def option_fields() -> list[dict[str, object]]:
    """Return the same options as `option_rows` and `read_rows` for JSON, with values of the types of their defaults.

    An option of writes whose meaning is the same in reads is there once. `default` is None if there is none.
    """
    writes = SINK_FIELDS | REGISTRY_FIELDS | {data_source_name(name): field for name, field in KAFKA_FIELDS.items()}
    reads = (
        SOURCE_FIELDS
        | READ_ONLY_REGISTRY_FIELDS
        | {data_source_name(name): field for name, field in CONSUMER_FIELDS.items()}
    )
    shared = {data_source_name(name) for name in CONSUMER_FIELDS if _is_shared(name)}
    rows = [_fields(name, field, writes=True, reads=name in shared) for name, field in writes.items()]
    return rows + [
        _fields(name, field, writes=False, reads=True) for name, field in reads.items() if name not in shared
    ]


def _fields(name: str, field: dataclasses.Field[object], *, writes: bool, reads: bool) -> dict[str, object]:
    option: Option = field.metadata["option"]
    is_plain = isinstance(field.default, bool | int | float | str) and field.default != ""
    return {
        "name": name,
        "default": field.default if is_plain and not option.required else None,
        "required": option.required,
        "writes": writes,
        "reads": reads,
        "description": _row(name, field)[2],
    }


def _is_shared(name: str) -> bool:
    """Return whether a consumer's option has the same row as the producer's."""
    other = KAFKA_FIELDS.get(name)
    return other is not None and other.metadata["option"] == CONSUMER_FIELDS[name].metadata["option"]


def _row(name: str, field: dataclasses.Field[object]) -> tuple[str, str, str]:
    option: Option = field.metadata["option"]
    default = "required" if option.required else "none" if field.default in (None, "") else str(field.default)
    if field.type == "bool":
        default = default.lower()
    kafka = f" Kafka's default: {option.kafka_default}." if option.kafka_default else ""
    names = ", ".join(f"`{KAFKA_PREFIX}{alias}`" for alias in option.aliases)
    aliases = f" Also named {names}." if names else ""
    prefix = KAFKA_PREFIX if option.name else ""
    former = "".join(f" Formerly `{prefix}{former}`." for former in option.former_names)
    return name, default, option.doc + _maximum(option) + kafka + aliases + former


def _maximum(option: Option) -> str:
    """Return a sentence with the maximum of an option, if its text does not have it."""
    if (
        option.high in (None, INT32_MAX, INT64_MAX)
        or f"{option.high:g}" in option.doc
        or str(option.high) in option.doc
    ):
        return ""
    return f" At most {option.high}."


def render_markdown() -> str:
    """Return the table of the options of writes as Markdown, for docs/options.md."""
    return _markdown(option_rows())


def render_reads() -> str:
    """Return the table of the options of reads as Markdown, for docs/options.md."""
    return _markdown(read_rows())


def _markdown(rows: list[tuple[str, str, str]]) -> str:
    lines = ["| option | default | description |", "|---|---|---|"]
    lines += [f"| `{name}` | {default.removeprefix('none')} | {doc} |" for name, default, doc in rows]
    return "\n".join(lines) + "\n"
