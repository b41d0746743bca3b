"""The pattern by which ListTransactions chooses ids (KIP-1152): RE2, as in Kafka, within bounds of time.

Python's own patterns may take years for a name that the same client has chosen. RE2's time grows with the names and with the size
of the pattern, and `(?:a?a?…){1000}` has a hundred thousand states: twenty names of a thousand characters took a minute.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Final

from spark_producer.broker.coordinator.coordinator import MAX_NAME_LENGTH

MAX_PATTERN_LENGTH: Final = 1000
MAX_WEIGHT: Final = 20_000
"""The largest weight of a pattern, which is about the number of its states; a name then takes a tenth of a second at most."""

CLASS_WEIGHT: Final = 1000
"""The weight of a class of Unicode (`\\pL`), which has hundreds of ranges."""

MAX_CHUNK_WORK: Final = 2_000_000
"""Names are matched together whose characters times the pattern's weight are at most that: some 50 ms."""

MAX_MATCH_S: Final = 0.3
"""So long a list may take."""

_REPEATED: Final = re.compile(r"\{([0-9]{1,4})(?:,([0-9]{0,4}))?\}")


def matching_names(names: list[str], pattern: str, clock: Callable[[], float] = time.monotonic) -> list[str]:
    """Return the names that match the pattern as a whole.

    Raises:
        ValueError: the pattern is malformed, too large, or takes too long.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    size = weight(pattern)
    if len(pattern) > MAX_PATTERN_LENGTH or size > MAX_WEIGHT:
        raise ValueError(f"the pattern has {len(pattern)} characters and the weight {size}")
    whole, step = rf"\A(?:{pattern})\z", max(1, MAX_CHUNK_WORK // (size * MAX_NAME_LENGTH))
    pc.match_substring_regex(pa.array([""]), whole)  # it may be malformed; and Arrow takes its time at first
    found: list[str] = []
    until = clock() + MAX_MATCH_S
    for at in range(0, len(names), step):
        if clock() > until:
            raise ValueError(f"{at} of {len(names)} names took more than {MAX_MATCH_S} s")
        some = names[at : at + step]
        matches = pc.match_substring_regex(pa.array(some, pa.string()), whole)
        found += [name for name, matches_it in zip(some, matches.to_pylist(), strict=True) if matches_it]
    return found


def weight(pattern: str) -> int:
    """Return about how many states a pattern has: as if every repetition were around all the others."""
    states = 1 + len(pattern) + CLASS_WEIGHT * pattern.lower().count(r"\p")
    for least, most in _REPEATED.findall(pattern):
        states = min(states * max(1, int(least), int(most or 0)), MAX_WEIGHT + 1)
    return states
