"""Fixtures of the broker's tests."""

from collections.abc import Iterator

import pytest

from tests.fakes.disk import Disk


@pytest.fixture
def disk() -> Iterator[Disk]:
    """The disk of the test's broker."""
    with pytest.MonkeyPatch.context() as patch:
        yield Disk(patch)
