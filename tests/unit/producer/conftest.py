"""Fixtures of the tests of this folder."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from spark_producer import Producer


@pytest.fixture
def start_small(start: Callable[..., Producer]) -> Callable[..., Producer]:
    """Makes producers as `start` does, with batches of 1,024 bytes."""
    return lambda **options: start(**{"batch_size": 1024} | options)
