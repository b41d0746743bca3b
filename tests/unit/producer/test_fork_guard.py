"""A producer in a forked child: it says so at once, whatever lock was held, and the worker makes another."""

from __future__ import annotations

import os

import pytest

from spark_producer.errors import IllegalState
from spark_producer.producer.fork_guard import forbid_after_fork, is_forked


def test_only_another_process_is_refused() -> None:
    @forbid_after_fork("call")
    class Made:
        def __init__(self, process: int) -> None:
            self.process = process

        def call(self, number: int, *, more: int) -> int:
            """Documented."""
            return number + more

    here, elsewhere = Made(os.getpid()), Made(1)
    assert (here.call(1, more=2), is_forked(here), is_forked(elsewhere)) == (3, False, True)
    assert Made.call.__doc__ == "Documented."
    with pytest.raises(IllegalState, match=r"created in process 1, .*Create a producer in each process"):
        elsewhere.call(1, more=2)
