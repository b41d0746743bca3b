"""Sufficient options for tests, and the errors of wrong ones."""

from __future__ import annotations

import pytest

from spark_producer.config import parse_options
from spark_producer.errors import ConfigError

SERVERS = {"kafka.bootstrap.servers": "broker:9092"}


def refused(options: dict[str, str], *parts: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_options(options)
    for part in parts:
        assert part in str(raised.value)
