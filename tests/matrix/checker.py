"""Checks the rows of a reader: lost, duplicated, damaged, foreign, or out of order.

The names are those of Jepsen's checker of Kafka, where it has one.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from tests.matrix.rows import Row, row_of

SHOWN = 5
"""examples in a message"""


class Seen(NamedTuple):
    """A record as a reader got it."""

    offset: int
    key: bytes | None
    value: bytes | None


Read = Mapping[int, Sequence[Seen]]
"""Partition → its records, in the order in which the reader got them."""


def violations(
    wanted: set[Row],
    read: Read,
    *,
    whole: bool = True,
    keys_move: bool = False,
    together: Mapping[int, int] | None = None,
) -> list[str]:
    """One line for each kind of violation; none if every row is there exactly once and in order.

    Unless it must be `whole`, rows may be missing, as when a query has stopped loudly: what is visible must be right.
    `keys_move` says that a key may be in several partitions, because there are new ones. `together` gives the micro-batch of a
    batch of files: rows of several files in one micro-batch are written by several tasks, between which there is no order.
    """
    found = {partition: [(seen, row_of(seen.value)) for seen in records] for partition, records in read.items()}
    places = [(partition, seen, row) for partition, records in found.items() for seen, row in records]
    rows = Counter(row for _, _, row in places if row is not None)
    homes: dict[str, set[int]] = {}
    for partition, _, row in places:
        if row is not None:
            homes.setdefault(row.key, set()).add(partition)
    kinds: dict[str, Sequence[object]] = {
        "lost-write": sorted(wanted - rows.keys()) if whole else [],
        "duplicate": sorted(row for row, count in rows.items() if count > 1),
        "foreign": sorted(rows.keys() - wanted),
        "damaged": [(partition, seen.offset) for partition, seen, row in places if row is None],
        "wrong key": [row for _, seen, row in places if row is not None and (seen.key or b"").decode() != row.key],
        "key in two partitions": [] if keys_move else sorted(key for key, where in homes.items() if len(where) > 1),
        "nonmonotonic offsets": [
            (partition, later.offset)
            for partition, records in read.items()
            for earlier, later in itertools.pairwise(records)
            if later.offset <= earlier.offset
        ],
        "out of order": _disordered(
            ([row for _, row in records if row is not None] for records in found.values()), together or {}
        ),
    }
    return [_violation(kind, examples) for kind, examples in kinds.items() if examples]


def _disordered(partitions: Iterable[list[Row]], together: Mapping[int, int]) -> list[tuple[Row, Row]]:
    """Neighbours of one key of which the later one was made earlier."""

    def is_before(row: Row, other: Row) -> bool:
        if row.batch == other.batch:
            return row.number < other.number
        return together.get(row.batch, row.batch) < together.get(other.batch, other.batch)

    wrong: list[tuple[Row, Row]] = []
    for rows in partitions:
        last: dict[str, Row] = {}
        for row in rows:
            before = last.get(row.key)
            if before is not None and is_before(row, before):
                wrong.append((before, row))
            last[row.key] = row
    return wrong


def differences(concurrent: Read, later: Read) -> list[str]:
    """Return the differences between a concurrent reader and a later one, for example a row of an aborted transaction."""
    wrong = []
    for partition in sorted(concurrent.keys() | later.keys()):
        first, second = set(concurrent.get(partition, ())), set(later.get(partition, ()))
        for kind, only in (("seen only at the time", first - second), ("seen only later", second - first)):
            if only:
                wrong.append(_violation(f"{kind} in partition {partition}", sorted(seen.offset for seen in only)))
    return wrong


def _violation(kind: str, examples: Sequence[object]) -> str:
    shown = ", ".join(str(tuple(one)) if isinstance(one, tuple) else str(one) for one in examples[:SHOWN])
    return f"{kind}: {len(examples)}, e.g. {shown}"
