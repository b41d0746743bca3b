"""All parts of the benchmarks, in the order of the main page."""

from __future__ import annotations

from benchmarks import bulk, first_write, imports, single_records
from benchmarks.micro_batches import part as micro_batches
from benchmarks.part import Part

BULK = "bulk"
"""The one name for all scenes of whole writes."""

PARTS: tuple[Part, ...] = (*bulk.PARTS, micro_batches.PART, single_records.PART, first_write.PART, imports.PART)


def named(names: list[str]) -> list[Part]:
    """Return the parts of these names, in the order of the list; all parts if there are no names.

    Raises:
        ValueError: no part has one of the names.
    """
    wanted = {name for given in names for name in ([part.name for part in bulk.PARTS] if given == BULK else [given])}
    unknown = sorted(wanted - {part.name for part in PARTS})
    if unknown:
        known = ", ".join([BULK, *(part.name for part in PARTS)])
        raise ValueError(f"unknown parts {', '.join(unknown)}; there are: {known}")
    return [part for part in PARTS if not names or part.name in wanted]
