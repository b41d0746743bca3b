"""A decoder of foreign bytes, as the fuzzer sees it."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

CORPUS = Path(__file__).parent / "corpus"
"""A folder for each target with the inputs that are kept: those that once showed a defect."""


class Target(NamedTuple):
    """A decoder.

    name: what it is called on the command line and in docs/fuzzing.md.
    decodes: which bytes, and of whom; a cell of the page.
    seeds: returns good inputs, from which damaged ones are made.
    run: decodes some inputs. Errors that the decoder may raise are caught in it; every other exception is a finding. What decodes
        columns gets many rows at a time, since a call costs as much as hundreds of them.
    tokens: pieces of the format that are inserted as they are.
    """

    name: str
    decodes: str
    seeds: Callable[[], list[bytes]]
    run: Callable[[Sequence[bytes]], None]
    tokens: tuple[bytes, ...] = ()


def single(
    name: str,
    decodes: str,
    seeds: Callable[[], list[bytes]],
    decode: Callable[[bytes], None],
    tokens: tuple[bytes, ...] = (),
) -> Target:
    """Return a target whose inputs have nothing to do with each other."""
    return Target(name, decodes, seeds, partial(_one_by_one, decode), tokens)


def _one_by_one(decode: Callable[[bytes], None], inputs: Sequence[bytes]) -> None:
    for data in inputs:
        decode(data)


def compared(data: bytes, every: int) -> bool:
    """Return whether an input is one of those, one in `every`, for which a slow second decoder is asked, too."""
    return not zlib.crc32(data) % every


def kept_inputs(target: Target) -> list[Path]:
    """Return the files of the corpus of a target, in order."""
    return sorted((CORPUS / target.name).glob("*.bin"))
