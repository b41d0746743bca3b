"""The topics that are for control records of exactly-once writes alone: rows could be taken for what a sink has committed."""

from __future__ import annotations

DEFAULT_CONTROL_TOPIC = "__pyproducer_commits"

_known: dict[str, None] = {DEFAULT_CONTROL_TOPIC: None}
"""Those that this process knows of."""


def keep_rows_out(topic: str) -> None:
    """Let no producer of this process write rows to a topic from now on, since it is the `exactlyOnceTopic` of a write."""
    _known[topic] = None


def is_control_topic(topic: str | None) -> bool:
    """Whether a topic is known to have control records."""
    return topic in _known


def refusal(topic: str) -> str:
    """Return why rows do not go to a control topic, and what to do."""
    return (
        f"the topic {topic!r} is for control records of exactly-once writes (exactlyOnceTopic), and takes no rows: they could be "
        "taken for what a sink has committed. Name another topic, or leave these rows out"
    )
