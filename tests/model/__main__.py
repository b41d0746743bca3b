"""Runs all models and writes docs/exactly_once_models.md: `make model`. With the argument `small` it prints the small ones."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from pathlib import Path

from tests.model.page import Row, page
from tests.model.search import search
from tests.model.table import Case, broken, large, small

PAGE = Path(__file__).resolve().parents[2] / "docs" / "exactly_once_models.md"


def rows(cases: Iterable[Case]) -> list[Row]:
    """Run the cases one after another, and print each as soon as it is known."""
    found = []
    for case in cases:
        started = time.monotonic()
        row = Row(case, search(case.wiring, case.max_worlds, case.eager))
        print(
            f"{case.name}: {row.finding.result}, {row.finding.states:,} worlds, {time.monotonic() - started:.0f} s",
            flush=True,
        )
        if not row.as_expected:
            print(*row.finding.trace, sep="\n  ")
        found.append(row)
    return found


def main(arguments: list[str]) -> int:
    """The exit status: 0 if every model gave what is expected."""
    only_small = arguments == ["small"]
    holds = rows([*small(), *([] if only_small else large())])
    breaks = rows(case for case in broken() if not (only_small and case.large))
    if not only_small:
        PAGE.write_text(page(holds, breaks), encoding="utf-8")
    return 0 if all(row.as_expected for row in (*holds, *breaks)) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
