"""The control topics of exactly-once writes, to which no rows go: a row could pass for the record of a commit."""

from __future__ import annotations

DEFAULT_CONTROL_TOPIC = "__pyproducer_commits"

_known: dict[str, None] = {DEFAULT_CONTROL_TOPIC: None}
"""The control topics that this process knows."""


def add_control_topic(topic: str) -> None:
    """Make all producers of this process refuse rows for a topic, which is the `exactlyOnceControlTopic` of a write."""
    _known[topic] = None


def is_control_topic(topic: str | None) -> bool:
    """Return whether a topic is a known control topic."""
    return topic in _known


def refusal(topic: str) -> str:
    """Return why rows for a control topic are refused, and what to do."""
    return (
        f"the topic {topic!r} is for control records of exactly-once writes (exactlyOnceControlTopic) and takes no rows: a row "
        "could pass for the record of a commit. Name another topic, or leave these rows out"
    )
