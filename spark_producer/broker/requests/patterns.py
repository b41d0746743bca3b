"""The pattern of ListTransactions that selects transactional ids (KIP-1152): RE2, as in Kafka, within limits of time.

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
"""Maximum weight of a pattern, which is about the number of its states; a name then takes a tenth of a second at most."""

CLASS_WEIGHT: Final = 1000
"""The weight of a Unicode class (`\\pL`), which has hundreds of ranges."""

MAX_CHUNK_WORK: Final = 2_000_000
"""Maximum work of one call of Arrow, in characters times the pattern's weight: some 50 ms."""

MAX_MATCH_S: Final = 0.3
"""Maximum time for all names in seconds."""

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
    pc.match_substring_regex(pa.array([""]), whole)  # raises for a malformed pattern, and warms Arrow up
    found: list[str] = []
    deadline = clock() + MAX_MATCH_S
    for start in range(0, len(names), step):
        if clock() > deadline:
            raise ValueError(f"{start} of {len(names)} names took more than {MAX_MATCH_S} s")
        some = names[start : start + step]
        matches = pc.match_substring_regex(pa.array(some, pa.string()), whole)
        found += [name for name, matches_it in zip(some, matches.to_pylist(), strict=True) if matches_it]
    return found


def weight(pattern: str) -> int:
    """Return the approximate number of states of a pattern, as if all of its repetitions were nested."""
    states = 1 + len(pattern) + CLASS_WEIGHT * pattern.lower().count(r"\p")
    for least, most in _REPEATED.findall(pattern):
        states = min(states * max(1, int(least), int(most or 0)), MAX_WEIGHT + 1)
    return states
