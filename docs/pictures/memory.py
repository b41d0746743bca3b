"""Draws docs/how_it_works_memory.svg: a batch, the pool of buffers that batches lie in, a request, and the life of a buffer."""

from __future__ import annotations

from docs.pictures.drawing import Picture
from spark_producer.config import KAFKA_FIELDS
from spark_producer.record.batch_v2 import HEADER_SIZE

TITLE = "Batch, pool and request: how records are gathered, and the life of a buffer"

BUFFERS = (
    ("flying", "flights-0", "batch 6"),
    ("flying", "flights-2", "batch 3"),
    ("flying", "flights-1", "batch 5"),
    ("waiting", "flights-0", "batch 7"),
    ("open", "flights-0", "batch 8"),
    ("open", "flights-1", "batch 6"),
    ("free", "", ""),
    ("free", "", ""),
)
"""What is in the buffers of the pool."""

ZOOMED = 4
"""The buffer that is shown large."""

FILLED = {ZOOMED: 0.73, 5: 0.4}
"""How far the open ones are filled."""

GUTTER, LEFT, RIGHT = 14, 176, 944
"""Where the names of the rows begin, and the edges of what is beside them."""

STEP, BUFFER = 97, 89
"""From one buffer to the next, and the width of one."""

STATES = (
    ("free", 14, "Free", "in the pool"),
    ("open", 270, "Open", "rows are written"),
    ("waiting", 526, "Closed", "waits for a request"),
    ("flying", 782, "In flight", "until the answer"),
)
CHANGES = (
    ("a row has no", "open batch"),
    ("full, lingered", "or flushed"),
    ("taken into", "a request"),
)
"""What happens between one state and the next."""


def memory_picture() -> Picture:
    """Return the picture."""
    picture = Picture(TITLE, 960, 636)
    _zoom(picture)
    _batch(picture)
    _pool(picture)
    _request(picture)
    _life(picture)
    return picture


def _default(option: str) -> str:
    return f"{KAFKA_FIELDS[option].default:,}"


def _left(buffer: int) -> int:
    return LEFT + buffer * STEP


def _named(picture: Picture, y: float, name: str, text: str) -> None:
    picture.text(GUTTER, y, name, "head")
    picture.lines(GUTTER, y + 18, text, 142, "note")


def _zoom(picture: Picture) -> None:
    """Lines from the buffers to what is shown of them."""
    x = _left(ZOOMED)
    picture.line((x, 160), (LEFT, 96), kind="dashed")
    picture.line((x + BUFFER, 160), (RIGHT, 96), kind="dashed")
    for buffer, to in ((0, 286), (1, 456)):
        picture.line((_left(buffer), 218), (to, 294), kind="dashed")
        picture.line((_left(buffer) + BUFFER, 218), (to + 162, 294), kind="dashed")


def _batch(picture: Picture) -> None:
    _named(picture, 60, "A batch", "records of one partition")
    picture.bracket(LEFT, 38, RIGHT - LEFT, f"at most batch.size: {_default('batch.size')} bytes by default")
    picture.block("free", LEFT, 42, RIGHT - LEFT, 54, 3)
    picture.block("memory", LEFT, 42, 172, 54, 3)
    picture.text(LEFT + 10, 64, f"header, {HEADER_SIZE} bytes")
    picture.text(LEFT + 10, 82, "producer id, sequence, CRC", "note")
    x = LEFT + 172
    for number, width in enumerate((84, 136, 84, 84), start=1):
        picture.block("open", x, 42, width, 54, 3)
        picture.text(x + 10, 64, f"record {number}", max_width=width - 14)
        picture.text(x + 10, 82, "key, value" + (", headers" if number == 2 else ""), "note", max_width=width - 12)
        x += width
    picture.text(x + 16, 74, "room for more of its rows", "note")


def _pool(picture: Picture) -> None:
    _named(picture, 178, "The pool", "buffers, of which each batch has one")
    picture.block("frame", LEFT - 10, 150, RIGHT - LEFT + 20, 78, 8)
    for at, (kind, partition, name) in enumerate(BUFFERS):
        x = _left(at)
        picture.block("free", x, 160, BUFFER, 58, 3)
        picture.block(kind, x, 160, BUFFER * FILLED.get(at, 1), 58, 3)
        if partition:
            picture.text(x + 8, 184, partition, max_width=BUFFER - 10)
            picture.text(x + 8, 203, name, "note", max_width=BUFFER - 10)
        else:
            picture.text(x + BUFFER / 2, 193, "free", "note", anchor="middle")
    text = f"together buffer.memory: {_default('buffer.memory')} bytes or more, for all partitions"
    picture.text(RIGHT, 246, text, "note", anchor="end")


def _request(picture: Picture) -> None:
    _named(picture, 312, "A request", "batches of partitions that one broker leads")
    picture.block("outer", LEFT, 294, 110, 54, 3)
    picture.text(LEFT + 10, 316, "to broker 1")
    picture.text(LEFT + 10, 334, "acks, timeout", "note")
    for x, partition, name in ((286, "flights-0", "batch 6"), (456, "flights-2", "batch 3")):
        picture.block("flying", x, 294, 162, 54, 3)
        picture.text(x + 10, 316, partition)
        picture.text(x + 10, 334, f"{name}, not copied", "note")
    picture.line((LEFT, 354), (LEFT, 360), (618, 360), (618, 354))
    text = f"at most max.request.size: {_default('max.request.size')} bytes by default"
    picture.text(397, 376, text, "note", anchor="middle")
    flights = _default("max.in.flight.requests.per.connection")
    text = f"One batch of each partition that has something to send. Up to {flights} requests are on their way to a broker."
    picture.lines(646, 312, text, RIGHT - 646)


def _life(picture: Picture) -> None:
    picture.text(GUTTER, 428, "The life of a buffer", "head")
    for kind, x, name, text in STATES:
        picture.box(kind, x, 484, 164, 62, name, "")
        picture.text(x + 10, 531, text, max_width=150)
    for (_, x, _, _), (first, second) in zip(STATES, CHANGES, strict=False):
        picture.arrow((x + 164, 515), (x + 256, 515))
        picture.text(x + 210, 491, first, "note", anchor="middle", max_width=88)
        picture.text(x + 210, 505, second, "note", anchor="middle", max_width=88)
    picture.arrow((824, 484), (824, 448), (608, 448), (608, 484))
    picture.text(716, 440, "to be sent again", "note", anchor="middle")
    picture.arrow((864, 546), (864, 586), (96, 586), (96, 546))
    picture.text(480, 579, "acknowledged, or failed for good", "note", anchor="middle")
    text = "No free buffer: the task waits in line, up to max.block.ms, and takes no rows from Spark meanwhile."
    picture.text(GUTTER, 620, text)
