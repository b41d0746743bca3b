"""What tests of options share: options that are enough, and what is said of those that are wrong."""

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
