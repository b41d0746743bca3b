"""Draws docs/how_it_works_processes.svg: which process does what during a write in Spark, from the top down in time."""

from __future__ import annotations

from docs.pictures.drawing import Picture

TITLE = "A write in Spark: driver, planner, executors, Python workers, commit process, and Kafka"

LANES = (
    ("Spark's JVM", 20, 142),
    ("Python processes", 178, 190),
    ("Spark's JVM", 402, 142),
    ("Python workers", 560, 190),
)
"""The names, left edges and widths of the lanes of driver and executors."""

KAFKA = 784, 160
BOTTOM = 606
_JVM, _PYTHON, _EXECUTOR, _WORKER = (x + width / 2 for _, x, width in LANES)
_BROKERS = KAFKA[0] + KAFKA[1] / 2


def processes_picture() -> Picture:
    """Return the picture."""
    picture = Picture(TITLE, 960, BOTTOM + 24)
    _lanes(picture)
    _planning(picture)
    _tasks(picture)
    _commit(picture)
    return picture


def _lanes(picture: Picture) -> None:
    for name, x, width in (("The driver", 10, 372), ("Each executor", 392, 372), ("Kafka", 774, 180)):
        picture.block("frame", x, 10, width, BOTTOM, 10)
        picture.text(x + width / 2, 34, name, "head", anchor="middle")
    for name, x, width in (*LANES, ("brokers", *KAFKA)):
        picture.line((x + width / 2, 74), (x + width / 2, BOTTOM), kind="dashed")
        picture.block("outer", x, 46, width, 28, 5)
        picture.text(x + width / 2, 65, name, anchor="middle", max_width=width)


def _planning(picture: Picture) -> None:
    picture.box("plain", 20, 90, 142, 62, "save()", "or a micro-batch")
    picture.box(
        "driver",
        178,
        104,
        190,
        124,
        "Planner",
        "checks options and columns, asks the brokers for the topic, makes the writer",
    )
    picture.step(350, 123, 1)
    picture.arrow((162, 134), (178, 134))
    picture.arrow((368, 166), (_BROKERS, 166), both=True)
    picture.label(578, 157, "Is the topic there? If not, no task begins", anchor="middle")
    picture.arrow((178, 206), (_JVM, 206), (_JVM, 256))
    picture.label(_JVM + 10, 246, "the writer, pickled")


def _tasks(picture: Picture) -> None:
    picture.box("plain", 20, 256, 142, 62, "Tasks", "one a partition")
    picture.arrow((162, 288), (402, 288))
    picture.label(270, 279, "a task with the writer", anchor="middle")
    picture.box("plain", 402, 256, 142, 80, "Executor", "reads rows, turns them into Arrow")
    for shift in (12, 6):
        picture.block("task", 560 + shift, 256 + shift, 178, 126)
    picture.box(
        "task",
        560,
        256,
        178,
        126,
        "Worker",
        "has the producer; waits until all rows are acknowledged; stays for later tasks",
    )
    picture.step(721, 275, 2)
    picture.arrow((544, 296), (560, 296))
    picture.arrow((750, 306), (_BROKERS, 306))
    picture.label(780, 297, "batches")
    picture.arrow((_BROKERS, 346), (750, 346))
    picture.label(780, 337, "offsets")
    picture.arrow((560, 366), (_JVM, 366), (_JVM, 430))
    picture.label(_JVM + 10, 357, "reports: rows, offset ranges, metrics")


def _commit(picture: Picture) -> None:
    picture.box("plain", 20, 430, 142, 62, "All reports", "or a failed task")
    picture.box(
        "driver",
        178,
        430,
        190,
        124,
        "Commit process",
        "adds up and logs what was written; if a task has failed, what is left",
    )
    picture.step(350, 449, 3)
    picture.arrow((162, 461), (178, 461))
    picture.arrow((368, 496), (_BROKERS, 496), kind="dashed", both=True)
    picture.label(578, 487, "Only if exactly once: the batch is committed here", anchor="middle")
    picture.arrow((178, 524), (_JVM, 524), (_JVM, 544))
    picture.box("plain", 20, 544, 142, 62, "save() returns", "or raises")
