"""The pictures of docs/how_it_works.md, by the files that `docs/update.py` writes them to."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from docs.pictures.drawing import Picture
from docs.pictures.memory import memory_picture
from docs.pictures.processes import processes_picture
from docs.pictures.row import row_picture

PICTURES: Mapping[str, Callable[[], Picture]] = {
    "how_it_works_row.svg": row_picture,
    "how_it_works_memory.svg": memory_picture,
    "how_it_works_processes.svg": processes_picture,
}
