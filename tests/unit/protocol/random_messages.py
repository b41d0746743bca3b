"""Random message bodies made from the schemas, from a seeded generator: every field that a version has gets a value."""

from __future__ import annotations

from random import Random
from typing import Any

from spark_producer.protocol.fields import Array, Field, Message, Struct, WireType

RANGES = {WireType.INT8: 8, WireType.INT16: 16, WireType.INT32: 32, WireType.INT64: 64}
ALPHABET = "abcXYZ019._-äß€\u0000\U0001f600"

# kio maps these to enumerations, durations and dates, which have no value for every integer.
KNOWN_ERROR_CODES = (-1, 0, 3, 6, 10, 35, 45, 87)
FIRST_AND_LAST_DATE_MS = (0, 4_000_000_000_000)
MAX_DURATION_MS = 86_400_000_000_000


def random_body(schema: Struct[Message], version: int, random: Random) -> Message:
    """A body with a value for each field of `version`; the others keep their defaults."""
    return schema.make(
        [
            random_value(field, version, random) if field.in_version(version) else field.default
            for field in schema.fields
        ]
    )


def random_value(field: Field, version: int, random: Random) -> Any:
    if field.name.endswith("error_code"):
        return random.choice(KNOWN_ERROR_CODES)
    if field.name == "log_append_time_ms":
        return random.choice((-1, random.randint(*FIRST_AND_LAST_DATE_MS)))
    if field.name == "transaction_start_time_ms":
        return random.randint(*FIRST_AND_LAST_DATE_MS)
    if field.name in ("session_lifetime_ms", "retention_time_ms"):
        return random.randint(0, MAX_DURATION_MS)
    if field.nullable(version) and random.random() < 0.2:
        return None
    if isinstance(field.type, Array):
        of = field.type.of
        return tuple(_random_element(of, version, random) for _ in range(random.choice((0, 1, 2, 5))))
    return _random_element(field.type, version, random)


def _random_element(of: WireType | Struct[Any] | Array, version: int, random: Random) -> Any:
    if isinstance(of, Struct):
        return random_body(of, version, random)
    assert isinstance(of, WireType)
    if of in RANGES:
        top = 1 << (RANGES[of] - 1)
        return random.choice((-1, 0, -top, top - 1, random.randrange(-top, top)))
    if of is WireType.BOOL:
        return random.random() < 0.5
    if of is WireType.UUID:
        return random.choice((bytes(16), random.randbytes(16)))
    if of is WireType.RECORDS:
        return random.randbytes(random.choice((0, 1, 126, 127, 200)))
    return "".join(random.choices(ALPHABET, k=random.choice((0, 1, 5, 63, 130))))
