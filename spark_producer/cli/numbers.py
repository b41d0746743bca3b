"""The functions that read numbers as arguments and check their bounds."""

from __future__ import annotations

import argparse


def port(text: str) -> int:
    """Return a port number from 0 to 65,535."""
    return between(text, 0, 65_535)


def positive(text: str) -> int:
    """Return a whole number of at least 1."""
    return between(text, 1, 2**31 - 1)


def natural(text: str) -> int:
    """Return a whole number of at least 0."""
    return between(text, 0, 2**31 - 1)


def between(text: str, low: int, high: int) -> int:
    """Return a whole number from `low` to `high`.

    Raises:
        argparse.ArgumentTypeError: the text is none; the message names both bounds.
    """
    if not (text.isascii() and text.isdigit() and low <= int(text) <= high):
        raise argparse.ArgumentTypeError(f"a whole number from {low} to {high} is needed, not {text!r}")
    return int(text)
