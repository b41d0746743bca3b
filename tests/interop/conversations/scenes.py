"""All scenes."""

from __future__ import annotations

from tests.interop.conversations import (
    scenes_basic,
    scenes_edge,
    scenes_groups,
    scenes_seen,
    scenes_stamped,
    scenes_static,
    scenes_taken_over,
)
from tests.interop.conversations.scene import Scene

SCENES: list[Scene] = [
    *scenes_basic.SCENES,
    *scenes_taken_over.SCENES,
    *scenes_stamped.SCENES,
    *scenes_seen.SCENES,
    *scenes_edge.SCENES,
    *scenes_groups.SCENES,
    *scenes_static.SCENES,
]
