"""The record of a soak: what has happened, as JSON values, kept as a file each minute.

Owns: its fields, its form on disk. Must not know: how a run is played or drawn.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.soak.samples import Sample, per_minute


@dataclass
class Record:
    """The events of a soak, as JSON values. Times are seconds since the first driver was ready."""

    seconds: float
    """The length that was asked for."""
    seed: int
    rows: int
    """Rows of a micro-batch of the streams of numbers, one of which begins each second."""
    only: list[str] = field(default_factory=list)
    """The names of its faults; all of them if it is empty."""
    version: str = "4"
    day: str = ""
    lasted: float = 0.0
    """Seconds from when all streams brought rows until the faults were over."""
    slowest_turn: float = 0.0
    """The longest time, in seconds, between two looks at streams and faults: faults lasted that much longer at most."""
    faults: list[tuple[float, float, str, str]] = field(default_factory=list)
    """begin, end, what was hit, name"""
    effects: list[tuple[float, str, str]] = field(default_factory=list)
    """When, the name of a fault, what it has brought about."""
    lives: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    samples: list[list[Any]] = field(default_factory=list)
    seen: list[tuple[float, dict[str, int]]] = field(default_factory=list)
    """Times, and the rows that the reader had of each topic."""
    balances: int = 0
    """The balances in between."""
    final: dict[str, dict[str, int]] = field(default_factory=dict)
    """The balance of each stream at the end."""
    first_offsets: dict[str, dict[str, int]] = field(default_factory=dict)
    """Topic → partition → where it begins at the end of the run: what is before was removed by retention."""
    flat: bool | None = None
    """Whether the processes of the spared stream have not grown; None if the run was too short to say."""
    violations: list[str] = field(default_factory=list)
    loud: str = ""

    @property
    def verdict(self) -> str:
        """`accounted`, `loud` or `violated`."""
        return "violated" if self.violations else "loud" if self.loud else "accounted"

    def kept(self) -> dict[str, Any]:
        """Return what is stored: of samples and of rows seen one of each minute."""
        samples = [list(each) for each in per_minute([Sample(*each) for each in self.samples])]
        seen = {int(moment // 60): (moment, counts) for moment, counts in self.seen}
        return asdict(self) | {"samples": samples, "seen": list(seen.values()), "verdict": self.verdict}

    def save(self, path: Path) -> None:
        """Replace the file of the record."""
        partial = path.with_name(f"{path.name}.partial")
        partial.write_text(json.dumps(self.kept()) + "\n", encoding="utf-8")
        partial.replace(path)
