"""The transactional ids of a sink: their format, and the sink of an id."""

from __future__ import annotations

import re

PREFIX = "pyproducer"
"""The prefix of all transactional ids of pyproducer, so that one ACL covers them."""

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
    """Return the prefix of all transactional ids of a sink. The ids of the sink `orders.eu` have that of `orders` too."""
    return f"{PREFIX}.{sink}."


def is_task_of(sink: str, transactional_id: str) -> bool:
    """Return whether an id is that of a task of this sink, not of another sink whose name begins with this one's and a dot."""
    prefix = task_prefix(sink)
    return transactional_id.startswith(prefix) and _TASK_ID.fullmatch(transactional_id, len(prefix)) is not None


def sink_of(transactional_id: str) -> str | None:
    """Return the sink whose task or driver has an id; None if no sink has. Names may have dots, so the end is matched."""
    found = _ANY_ID.fullmatch(transactional_id)
    return found[1] if found else None
