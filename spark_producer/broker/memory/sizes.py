"""Sizes in bytes: parsing and formatting."""

from __future__ import annotations

import re
from typing import Final

from spark_producer.errors import ConfigError

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB

_SIZE: Final = re.compile(r"([0-9]{1,15})\s*([kmg]?)(?:i?b)?", re.IGNORECASE)
_UNITS: Final = {"": 1, "k": KIB, "m": MIB, "g": GIB}
MAX_SIZE_BYTES: Final = 2**50


def parse_size(name: str, text: str, unit: int = 1) -> int:
    """Return the size in bytes that `text` gives: a number of `unit` bytes, or one with K, M or G (powers of 1,024).

    Raises:
        ConfigError: `text` is not a size; the message names the setting `name`.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is not None:
        number, letter = int(match[1]), match[2].lower()
        found = number * (_UNITS[letter] if letter else unit)
        if 0 < found <= MAX_SIZE_BYTES:
            return found
    raise ConfigError(f"{name} is {text[:40]!r}. Use a positive size such as 256M, 1G or a number of bytes")


def in_mib(count: int) -> str:
    """Return a size in MiB, with one digit after the point if it is small and not whole."""
    value = count / MIB
    return f"{value:,.0f} MiB" if value >= 100 or count % MIB == 0 else f"{value:,.1f} MiB"
