"""Runs the fleet for some minutes, and draws the answers to the dashboard's queries: `make dashboard`."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from itertools import groupby
from pathlib import Path

from pyspark.sql import SparkSession

from tests.dashboard.fleet import Fleet, fleet
from tests.dashboard.panels import ROOT
from tests.dashboard.picture import Line, Panel, draw, picture_name
from tests.support.prometheus import missing
from tests.support.waiting import wait_until

SECONDS = 120.0
"""The length of the pictures."""
RESULTS = ROOT / "docs" / "results"


def draw_rows(running: Fleet, seconds: float, folder: Path) -> list[Path]:
    """Draw a picture for each row of panels from the last `seconds`, and return the paths."""
    drawn = []
    for row, of_row in groupby(list(running.answers(seconds)), lambda each: each[0].row):
        panels = []
        for (title, unit), of_panel in groupby(of_row, lambda each: (each[0].panel, each[0].unit)):
            found = [(target.name_of(each.labels), each.points) for target, answer in of_panel for each in answer]
            start = min(points[0][0] for _, points in found)
            lines = [
                Line(name, [at - start for at, _ in points], [value for _, value in points]) for name, points in found
            ]
            panels.append(Panel(title, unit, sorted(lines, key=lambda line: line.name)))
        drawn.append(folder / picture_name(row))
        draw(panels, drawn[-1])
    return drawn


def main() -> int:
    """Run, draw, and print the names of the pictures."""
    if missing():
        print(f"make prometheus installs {missing()}")
        return 1
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    with tempfile.TemporaryDirectory() as home, fleet(spark, Path(home)) as running:
        wait_until(lambda: not running.unanswered(), "an answer to each query", seconds=180, pause=1)
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            running.read()
            time.sleep(3)  # the pace of the points in the pictures
        for path in draw_rows(running, SECONDS, RESULTS):
            print(path.relative_to(ROOT))
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
