"""The control topics of exactly-once writes, which take no rows: a row could be mistaken for a control record."""

from __future__ import annotations

DEFAULT_CONTROL_TOPIC = "__pyproducer_commits"

_known: dict[str, None] = {DEFAULT_CONTROL_TOPIC: None}
"""The control topics known to this process, in the order in which they were added."""


def add_control_topic(topic: str) -> None:
    """Make all producers of this process refuse rows for `topic`, the `exactlyOnceControlTopic` of a write."""
    _known[topic] = None


def is_control_topic(topic: str | None) -> bool:
    """Return whether a topic is a known control topic."""
    return topic in _known


def refusal(topic: str) -> str:
    """Return why rows for a control topic are refused, and what to do."""
    return (
        f"rows cannot go to the topic {topic!r}: it is for control records of exactly-once writes (exactlyOnceControlTopic), and "
        "a row could be mistaken for one. Name another topic, or leave these rows out"
    )
