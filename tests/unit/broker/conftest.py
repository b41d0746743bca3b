"""What tests of the broker share."""

from collections.abc import Iterator

import pytest

from tests.stages.disk import Disk


@pytest.fixture
def disk() -> Iterator[Disk]:
    """What the test's broker has for a disk."""
    with pytest.MonkeyPatch.context() as patch:
        yield Disk(patch)
