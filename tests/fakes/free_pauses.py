"""Pauses of the admin client that take no time: its clock jumps over them."""

from __future__ import annotations

import time

import pytest

from spark_producer.admin.exchange_client import POLL_INTERVAL, ExchangeClient


def skip_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let clients that are made from now on skip their pauses. Requests take the time that they take."""
    skipped = 0.0

    def clock() -> float:
        return time.monotonic() + skipped

    def pause(self: ExchangeClient, seconds: float, subject: str, began: float) -> None:
        nonlocal skipped
        until = clock() + seconds
        with self._closed_if_interrupted():
            while (left := until - clock()) > 0:
                if subject:
                    self._report_wait(clock() - began, subject)
                self._take(self._poll(0))
                skipped += min(left, POLL_INTERVAL)

    defaults = ExchangeClient.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "clock", clock)
    monkeypatch.setattr(ExchangeClient, "_pause", pause)
