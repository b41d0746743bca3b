"""Texts of options as Spark reads them, for tests without and with Spark."""

from __future__ import annotations

DURATIONS = [
    ("15m", 900_000), ("15min", 900_000), ("1h", 3_600_000), ("90", 90), ("90s", 90_000), ("100ms", 100), ("5us", 0),
    ("1500us", 1), ("1d", 86_400_000), ("15M", 900_000), (" 15m ", 900_000), ("0", 0),
]  # fmt: skip
"""Durations, and their milliseconds."""

BAD_DURATIONS = ("", "15 m", "1.5m", "15minutes", "1w", "m")

OFFSETS = {
    '{"t":{"0":23,"1":-1}}': "Map(t-0 -> 23, t-1 -> -1)",
    '{"t":{"0":-2},"u":{"3":0}}': "Map(t-0 -> -2, u-3 -> 0)",
    ' {"t" : {"00" : 9223372036854775807}} ': "Map(t-0 -> 9223372036854775807)",
}
"""JSON of offsets, and the text of Spark's value."""

REFUSED_OFFSETS = (
    "x", "[]", '{"t":[0]}', '{"t":{"a":1}}', '{"t":{"0":true}}', '{"t":{"0":"23"}}', '{"t":{"0":NaN}}', '{"t":{"0":01}}',
    '{"t":{"0":1,}}', "{'t':{'0':1}}", '{"t":{" 0":1}}',
)  # fmt: skip
"""JSON that Spark refuses."""

TAKEN_BY_SPARK = (
    "{}", "null", '{"t":{}}', '{"t":null}', '{"t":{"0":1.5}}', '{"t":{"0":null}}', '{"t":{"-1":1}}', '{"t":{"0":1,"0":2}}',
    '{"t":{"0":1},"t":{"1":2}}', '{"t":{"0":-3}}', '{"t":{"0":9223372036854775808}}', '{"t":{"0":1}} x', '{"t":{"0":1e3}}',
    '{"":{"0":1}}', '{"t":{"+1":1}}',
)  # fmt: skip
"""JSON that Spark takes for something else than it says, or fails over later; it is refused here."""
