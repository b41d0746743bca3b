"""Counters of the broker: plain dataclasses whose fields say what they count, and how Pulsar or BookKeeper call the same.

A counter is changed by the one thread that owns what it counts, and may be read by any thread at any time: a reading is an int
that is replaced as a whole, so it may be a moment old, and is never torn.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field, fields
from enum import Enum
from typing import Any, ClassVar, Final, NamedTuple, Protocol

PREFIX: Final = "pyproducer_broker"
_MEANING: Final = "meaning"


class MetricType(Enum):
    """What a value may do: a COUNTER only rises while the broker lives, a GAUGE also falls (Prometheus' types)."""

    COUNTER = "counter"
    GAUGE = "gauge"


class MetricDescription(NamedTuple):
    """What a field of counters means.

    text: what it counts, with its unit.
    kind: whether it may fall.
    theirs: the metric of Pulsar or BookKeeper that counts the same, or nearly so; empty if there is none.
    """

    text: str
    kind: MetricType
    counterpart: str = ""


class MetricReading(NamedTuple):
    """The value of one counter at the time of the call, under its name in Prometheus' text format, with labels if it has any."""

    name: str
    value: float
    meaning: MetricDescription
    labels: tuple[tuple[str, str], ...] = ()


class CountersDataclass(Protocol):
    """Any dataclass whose fields were made by `counter` and `gauge`."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


def counter(text: str, counterpart: str = "") -> Any:
    """Return a dataclass field of the type int, which counts up from 0."""
    return field(default=0, metadata={_MEANING: MetricDescription(text, MetricType.COUNTER, counterpart)})


def gauge(text: str, counterpart: str = "") -> Any:
    """Return a dataclass field of the type int, which is 0 at first, rises and falls."""
    return field(default=0, metadata={_MEANING: MetricDescription(text, MetricType.GAUGE, counterpart)})


def readings(tier: str, counters: CountersDataclass) -> Iterator[MetricReading]:
    """Yield the value of each field of `counters` under the name `pyproducer_broker_<tier>_<field>`, with `_total` for what only
    rises, as Prometheus recommends."""
    for each in fields(counters):
        meaning: MetricDescription = each.metadata[_MEANING]
        yield reading(f"{tier}_{each.name}", getattr(counters, each.name), meaning)


def reading(name: str, value: float, meaning: MetricDescription, **labels: str) -> MetricReading:
    """Return a reading under the broker's prefix."""
    suffix = "_total" if meaning.kind is MetricType.COUNTER else ""
    return MetricReading(f"{PREFIX}_{name}{suffix}", value, meaning, tuple(labels.items()))
