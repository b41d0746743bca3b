"""The counters of the broker: dataclasses whose fields describe what they count, and name Pulsar's or BookKeeper's counterpart.

One thread owns a counter and changes it; any thread may read it at any time. Its value is an int that is replaced as a whole, so
it may be a moment old, but is never torn.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field, fields
from enum import Enum
from typing import Any, ClassVar, Final, NamedTuple, Protocol

PREFIX: Final = "pyproducer_broker"
_MEANING: Final = "meaning"


class MetricType(Enum):
    """The type of a metric (Prometheus): a COUNTER only rises while the broker runs, a GAUGE also falls."""

    COUNTER = "counter"
    GAUGE = "gauge"


class MetricDescription(NamedTuple):
    """The description of a metric.

    text: what is counted, with its unit.
    kind: counter or gauge.
    counterpart: the metric of Pulsar or BookKeeper that counts the same, or nearly so; empty if there is none.
    """

    text: str
    kind: MetricType
    counterpart: str = ""


class MetricReading(NamedTuple):
    """The value of a metric, with its name and labels in Prometheus' text format."""

    name: str
    value: float
    meaning: MetricDescription
    labels: tuple[tuple[str, str], ...] = ()


class CountersDataclass(Protocol):
    """A dataclass whose fields were made by `counter` and `gauge`."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


def counter(text: str, counterpart: str = "") -> Any:
    """Return a dataclass field of type int that starts at 0 and only rises."""
    return field(default=0, metadata={_MEANING: MetricDescription(text, MetricType.COUNTER, counterpart)})


def gauge(text: str, counterpart: str = "") -> Any:
    """Return a dataclass field of type int that starts at 0, rises and falls."""
    return field(default=0, metadata={_MEANING: MetricDescription(text, MetricType.GAUGE, counterpart)})


def readings(tier: str, counters: CountersDataclass) -> Iterator[MetricReading]:
    """Yield the value of each field of `counters` as `pyproducer_broker_<tier>_<field>`, with `_total` for counters, as
    Prometheus recommends."""
    for each in fields(counters):
        meaning: MetricDescription = each.metadata[_MEANING]
        yield reading(f"{tier}_{each.name}", getattr(counters, each.name), meaning)


def reading(name: str, value: float, meaning: MetricDescription, **labels: str) -> MetricReading:
    """Return a reading whose name has the broker's prefix."""
    suffix = "_total" if meaning.kind is MetricType.COUNTER else ""
    return MetricReading(f"{PREFIX}_{name}{suffix}", value, meaning, tuple(labels.items()))
