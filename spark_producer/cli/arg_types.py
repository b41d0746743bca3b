"""Argument types: numbers within bounds, for `argparse`."""

from __future__ import annotations

import argparse

from spark_producer.common.escape import for_log

MAX_DIGITS = 40
"""Maximum digits of a number, more than any needs: `int` refuses thousands of digits with another error."""


def port(text: str) -> int:
    """Return a port number from 0 to 65,535."""
    return between(text, 0, 65_535)


def positive(text: str) -> int:
    """Return a whole number of at least 1."""
    return between(text, 1, 2**31 - 1)


def natural(text: str) -> int:
    """Return a whole number of at least 0."""
    return between(text, 0, 2**31 - 1)


def offset(text: str) -> int:
    """Return an offset of 64 bits; `-N` counts from the end."""
    digits = text.removeprefix("-")
    try:
        return between(digits, 0, 2**63 - 1) * (1 if digits == text else -1)
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(
            f"expected a whole number from 0 to {2**63 - 1}, or -N for N records before the end, not '{for_log(text)}'"
        ) from None


def between(text: str, low: int, high: int) -> int:
    """Return a whole number from `low` to `high`.

    Raises:
        argparse.ArgumentTypeError: the text is not such a number; the message names both bounds.
    """
    if not (text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS and low <= int(text) <= high):
        raise argparse.ArgumentTypeError(f"expected a whole number from {low} to {high}, not '{for_log(text)}'")
    return int(text)
