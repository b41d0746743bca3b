"""The names that topics can have (Kafka's Topic.validate)."""

from __future__ import annotations

import re

from spark_producer.errors import ConfigError

_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")


def check_topic(option: str, topic: str) -> None:
    """Refuse a text that cannot be the name of a topic; `option` is the one that has it.

    Raises:
        ConfigError: it cannot.
    """
    if _NAME.fullmatch(topic) and topic not in (".", ".."):
        return
    pattern = " For a pattern of names set subscribePattern." if option == "subscribe" and "*" in topic else ""
    raise ConfigError(
        f"{option} names {topic!r}, which is not a topic name: a name has 1 to 249 letters, digits, '.', '_' and '-'.{pattern} "
        "Correct it"
    )
