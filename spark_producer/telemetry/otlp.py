"""Encodes metrics as MetricsData of OpenTelemetry (opentelemetry-proto, metrics/v1/metrics.proto), which is a Protobuf message.

The numbers below are those of its fields, with their wire types.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from spark_producer.version import __version__

NAMESPACE = "pyproducer"

_DELTA, _CUMULATIVE = 1, 2
_START_TIME, _TIME, _AS_DOUBLE = 0x11, 0x19, 0x21
"""The tags of the fields `start_time_unix_nano`, `time_unix_nano` and `as_double` of a point, each of eight bytes."""

_SUM_POINT = struct.Struct("<BQBQBd")
_GAUGE_POINT = struct.Struct("<BQBd")


class Point(NamedTuple):
    """The value of a metric for one combination of attributes.

    `since` is None for a gauge. For a sum, which never falls, it is the begin of the interval in Unix nanoseconds.
    """

    name: str
    value: float
    attributes: tuple[tuple[str, str], ...] = ()
    since: int | None = None


def metrics_data(points: Iterable[Point], resource: Mapping[str, str], now: int, *, delta: bool) -> bytes:
    """Return the message with `points`, those of one metric together.

    `resource` has the attributes of the client. `now` is in Unix nanoseconds. With `delta` sums are those since the last push.
    """
    metrics = b"".join(
        [
            _field(2, _metric(name, found, now, delta))
            for name, found in itertools.groupby(sorted(points, key=_name), _name)
        ]
    )
    scope = _field(1, _field(1, NAMESPACE.encode()) + _field(2, __version__.encode()))
    attributes = b"".join([_field(1, _key_value(key, value)) for key, value in resource.items()])
    return _field(1, _field(1, attributes) + _field(2, scope + metrics))


def _name(point: Point) -> str:
    return point.name


def _metric(name: str, points: Iterable[Point], now: int, delta: bool) -> bytes:
    found = list(points)
    encoded = b"".join([_field(1, _point(each, now)) for each in found])
    if found[0].since is None:
        return _field(1, name.encode()) + _field(5, encoded)
    temporality = bytes([2 << 3, _DELTA if delta else _CUMULATIVE, 3 << 3, True])
    return _field(1, name.encode()) + _field(7, encoded + temporality)


def _point(point: Point, now: int) -> bytes:
    if point.since is None:
        value = _GAUGE_POINT.pack(_TIME, now, _AS_DOUBLE, point.value)
    else:
        value = _SUM_POINT.pack(_START_TIME, point.since, _TIME, now, _AS_DOUBLE, point.value)
    return value + b"".join([_field(7, _key_value(key, text)) for key, text in point.attributes])


def _key_value(key: str, text: str) -> bytes:
    return _field(1, key.encode()) + _field(2, _field(1, text.encode()))


def _field(number: int, content: bytes) -> bytes:
    """Return a field of variable size; `number` is less than 16."""
    return bytes([number << 3 | 2]) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    groups = bytearray()
    while value > 0x7F:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    groups.append(value)
    return bytes(groups)
