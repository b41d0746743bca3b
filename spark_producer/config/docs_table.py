"""The option table for readers: on the command line and in docs/options.md."""

from __future__ import annotations

import dataclasses

from spark_producer.config import KAFKA_FIELDS, SINK_FIELDS, Option, data_source_name
from spark_producer.config.option import INT32_MAX, INT64_MAX
from spark_producer.config.registry_table import REGISTRY_FIELDS
from spark_producer.config.unsupported import KAFKA_PREFIX


def option_rows() -> list[tuple[str, str, str]]:
    """Return (name, default, documentation) of every option, sink options first, in the order of the table."""
    rows = [_row(name, field) for name, field in (SINK_FIELDS | REGISTRY_FIELDS).items()]
    return rows + [_row(data_source_name(name), field) for name, field in KAFKA_FIELDS.items()]


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
    """Return the option table as Markdown, for docs/options.md."""
    lines = ["| option | default | description |", "|---|---|---|"]
    lines += [f"| `{name}` | {default.removeprefix('none')} | {doc} |" for name, default, doc in option_rows()]
    return "\n".join(lines) + "\n"
