"""Play a soak, keep its record, and write docs/soak.md with its plots.

python -m tests.soak --hours 2
python -m tests.soak --minutes 3 --only "driver killed" --out build/soak/try.md
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from tests.matrix.hand import Pace
from tests.soak.page import PAGE, write
from tests.soak.record import Record
from tests.soak.run import play


def arguments(given: list[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.soak", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hours", type=float, default=2.0)
    parser.add_argument("--minutes", type=float, help="instead of hours")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rows", type=int, default=500, help="rows of a micro-batch, about one of which a second")
    parser.add_argument("--only", action="append", default=[], metavar="FAULT", help="this fault; several times: these")
    parser.add_argument(
        "--pause", type=float, default=40.0, help="mean seconds between two faults of brokers or drivers"
    )
    parser.add_argument("--out", type=Path, default=PAGE, help="the page; its plots and its record lie beside it")
    return parser.parse_args(given)


def main(given: list[str]) -> int:
    """Play, write, and return the exit code: 1 if a row is not accounted. Then it says where logs and the record are kept."""
    chosen = arguments(given)
    seconds = 60 * chosen.minutes if chosen.minutes else 3600 * chosen.hours
    record = Record(seconds, chosen.seed, chosen.rows, chosen.only, day=f"{datetime.now(tz=UTC):%Y-%m-%d}")
    pace = Pace(first=(20, 30), pause=(0.5 * chosen.pause, 1.5 * chosen.pause), length=(2, 20))
    home = Path(tempfile.mkdtemp(prefix="soak-"))  # short: it is in the environment of every process
    print(f"logs and the record of each minute: {home}", flush=True)
    try:
        play(record, home, pace)
    finally:
        print(json.dumps({"verdict": record.verdict, "loud": record.loud, "final": record.final}, indent=1))
        print(*record.violations, sep="\n")
        write(record.kept(), chosen.out)
        if record.verdict == "accounted":
            shutil.rmtree(home, ignore_errors=True)
        else:
            print(f"kept: {home}")
    return int(record.verdict != "accounted")


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # who ends a run gets its page too
    sys.exit(main(sys.argv[1:]))
