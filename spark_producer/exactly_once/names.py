"""The transactional ids of a sink: what they look like, and which sink an id belongs to."""

from __future__ import annotations

import re

PREFIX = "pyproducer"
"""All our transactional ids begin with this, so that one rule gives the rights to them."""

CONTROL = "ctl"

_TASK_ID = re.compile(r"[0-9a-f]{32}\.[0-9]+")
_ANY_ID = re.compile(rf"{PREFIX}\.([A-Za-z0-9._-]+)\.(?:{CONTROL}|{_TASK_ID.pattern})")


def control_id(sink: str) -> str:
    """Return the transactional id under which the control record of a sink is written: `pyproducer.orders.ctl`."""
    return f"{PREFIX}.{sink}.{CONTROL}"


def task_id(sink: str, worker: str, slot: int) -> str:
    """Return the transactional id of a task: `pyproducer.orders.9f…3e.0`. `worker` is 32 hexadecimal digits."""
    return f"{task_prefix(sink)}{worker}.{slot}"


def task_prefix(sink: str) -> str:
    """Return how all transactional ids of a sink begin. Those of the sink `orders.eu` begin like those of `orders` too."""
    return f"{PREFIX}.{sink}."


def is_task_of(sink: str, transactional_id: str) -> bool:
    """Whether an id is one of a task of this sink, and not of another one whose name begins with this one's and a dot."""
    prefix = task_prefix(sink)
    return transactional_id.startswith(prefix) and _TASK_ID.fullmatch(transactional_id, len(prefix)) is not None


def sink_of(transactional_id: str) -> str | None:
    """Return the sink whose task or driver has an id; None if it is no sink's. A name may have dots: the end of the id tells."""
    found = _ANY_ID.fullmatch(transactional_id)
    return found[1] if found else None
