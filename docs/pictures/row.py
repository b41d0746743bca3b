"""Draws docs/how_it_works_row.svg: the way of a row through a Python worker to the brokers, and the way back."""

from __future__ import annotations

from docs.pictures.drawing import Picture

TITLE = "The way of a row: task thread, accumulator, I/O thread, brokers, and back"
LEFT, RIGHT = 176, 948
"""The edges of the Python worker."""

LANE = 188, 748
"""The left edge of the lanes in it, and their width."""

BOXES = ((200, 164), (384, 164), (568, 176), (764, 160))
"""The left edge and the width of the four boxes of a lane."""

QUEUES = {
    "flights-0": (3, 0.7),
    "flights-1": (2, 0.4),
    "flights-2": (1, 0.25),
}
"""How many closed batches a partition has, and how far its open one is filled."""

BUFFERS = ("flying",) * 2 + ("waiting",) * 6 + ("open",) * 3 + ("free",)
"""The pool, of which the queues have the closed and the open ones."""


def row_picture() -> Picture:
    """Return the picture."""
    picture = Picture(TITLE, 960, 718)
    picture.block("frame", LEFT, 44, RIGHT - LEFT, 536, 10)
    picture.text(LEFT + 14, 69, "A Python worker of an executor", "head")
    picture.text(LEFT + 300, 69, "one process, one task at a time", "note")
    picture.box("outer", 12, 112, 124, 112, "Spark's JVM", "reads the rows and hands them over as Arrow batches")
    _task_thread(picture)
    _accumulator(picture)
    _io_thread(picture)
    _brokers(picture)
    _ways(picture)
    return picture


def _lane(picture: Picture, top: float, numbers: tuple[int, ...], boxes: tuple[tuple[str, str], ...]) -> None:
    """Add the four boxes of a thread, with their numbers."""
    for (x, width), number, (name, text) in zip(BOXES, numbers, boxes, strict=True):
        picture.box("plain", x, top, width, 98, name, text)
        picture.step(x + width - 17, top + 18, number)


def _task_thread(picture: Picture) -> None:
    picture.block("task", LANE[0], 84, LANE[1], 150)
    picture.text(200, 107, "Task thread", "name")
    picture.text(304, 107, "works on whole columns: no row is ever a Python object", "note")
    _lane(
        picture,
        120,
        (1, 2, 3, 8),
        (
            ("Columns", "are checked; they are views of Arrow's buffers, no copy"),
            ("Partitioner", "places rows by the hash of the key, or else in runs"),
            ("Encoder", "writes rows into the open batch of each partition; full ones are closed"),
            ("Flush", "ends the task: waits until all is acknowledged"),
        ),
    )


def _accumulator(picture: Picture) -> None:
    picture.block("memory", LANE[0], 252, LANE[1], 162)
    picture.text(200, 275, "Accumulator", "name")
    picture.text(310, 275, "a queue of batches for each partition", "note")
    for place, (partition, (closed, filled)) in enumerate(QUEUES.items()):
        top = 288 + place * 33
        picture.text(200, top + 18, partition)
        for at in range(closed):
            picture.block("waiting", 276 + at * 92, top, 84, 26, 3)
        picture.block("free", 552, top, 84, 26, 3)
        picture.block("open", 552, top, 84 * filled, 26, 3)
    for x, kind, text in (
        (380, "waiting", "closed"),
        (462, "open", "open"),
        (530, "flying", "in flight"),
        (614, "free", "free"),
    ):
        picture.block(kind, x, 394, 11, 11, 2)
        picture.text(x + 16, 404, text, "note")
    picture.box(
        "plain",
        680,
        288,
        244,
        112,
        "Buffer pool",
        "Every batch lies in a buffer. If none is free the task waits, so Spark does",
    )
    for at, kind in enumerate(BUFFERS):
        picture.block(kind, 691 + at * 18.7, 373, 15, 18, 2)


def _io_thread(picture: Picture) -> None:
    picture.block("io", LANE[0], 432, LANE[1], 136)
    _lane(
        picture,
        444,
        (4, 5, 6, 7),
        (
            ("Drain", "takes the oldest batch of every partition that is due"),
            ("Seal", "producer id, sequence and CRC go into the header"),
            ("Request", "one for each broker, sent right from the buffers"),
            ("Answer", "ends a batch, or it is sent again"),
        ),
    )
    picture.text(200, 560, "I/O thread", "name")
    picture.text(292, 560, "one for each producer; owns all its connections", "note")


def _brokers(picture: Picture) -> None:
    picture.block("frame", 384, 624, 540, 82, 10)
    picture.text(398, 670, "Kafka", "head")
    picture.box("outer", 462, 636, 222, 58, "Broker 1", "leads flights-0, flights-2")
    picture.box("outer", 696, 636, 128, 58, "Broker 2", "leads flights-1")


def _ways(picture: Picture) -> None:
    picture.arrow((136, 168), (200, 168))
    for y in (168, 492):
        picture.arrow((364, y), (384, y))
        picture.arrow((548, y), (568, y))
    picture.arrow((594, 218), (594, 288))
    picture.text(604, 247, "rows", "note")
    picture.arrow((802, 288), (802, 270), (712, 270), (712, 218))
    picture.text(812, 278, "a free buffer", "note")
    picture.arrow((318, 380), (318, 444))
    picture.text(328, 428, "batches", "note")
    picture.arrow((620, 542), (620, 636))
    picture.arrow((726, 542), (726, 636))
    picture.text(610, 604, "batches of several partitions", "note", anchor="end")
    picture.arrow((874, 624), (874, 542))
    picture.text(884, 604, "offsets", "note")
    picture.arrow((844, 444), (844, 400))
    picture.text(854, 428, "buffer back", "note")
    picture.arrow((844, 120), (844, 26), (74, 26), (74, 112))
    picture.text(100, 18, "report: rows, offset ranges and metrics, for the commit on the driver", "note")
