"""Fixtures of the tests of the command line."""

from __future__ import annotations

import argparse
from typing import Any

import pytest

from spark_producer.cli import progress
from spark_producer.cli.pages import HelpfulParser


@pytest.fixture
def short_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `--timeout`, which takes whole seconds, count tenths of one, and a wait be reported as much sooner.

    For brokers that never answer. One that answers may take longer than a tenth on a busy machine.
    """
    parse = HelpfulParser.parse_known_args

    def in_tenths(self: HelpfulParser, *given: Any) -> tuple[argparse.Namespace, list[str]]:
        chosen, unknown = parse(self, *given)
        if self.prog == "pyproducer" and getattr(
            chosen, "timeout", None
        ):  # once, and not by the parser of the command too
            chosen.timeout /= 10
        return chosen, unknown

    monkeypatch.setattr(HelpfulParser, "parse_known_args", in_tenths)
    monkeypatch.setattr(progress, "STILL_TRYING", progress.STILL_TRYING / 10)
