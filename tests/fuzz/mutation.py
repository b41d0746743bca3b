"""Damages bytes: which input has which number follows from a seed, so that a crash can be repeated from its number."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

CHUNK = 1_000
"""Inputs that one random generator makes, since a new one costs as much as ten inputs."""
MAX_CHANGES = 4
MAX_SPAN = 40
"""Maximum bytes that one change removes, inserts or repeats."""
NUMBERS = tuple(
    sign * number % (1 << 8 * size)
    for size in (1, 2, 4, 8)
    for number in (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, (1 << 31) - 1, 1 << 31, (1 << 63) - 1)
    for sign in (1, -1)
)
VARINTS = (
    b"\x01",
    b"\x7f",
    b"\x80\x01",
    b"\xff\xff\xff\xff\x0f",
    b"\xfe\xff\xff\xff\x0f",
    b"\xff" * 9 + b"\x01",
    b"\x80" * 11,
)


def inputs(seeds: Sequence[bytes], tokens: Sequence[bytes], seed: int, first: int = 0) -> Iterator[bytes]:
    """Yield the inputs of `seed` from number `first` on, without an end."""
    chunk = first // CHUNK
    while True:
        chance = random.Random(f"{seed} {chunk}")
        for number in range(chunk * CHUNK, (chunk + 1) * CHUNK):
            found = damaged(seeds, tokens, chance)
            if number >= first:
                yield found
        chunk += 1


def damaged(seeds: Sequence[bytes], tokens: Sequence[bytes], chance: random.Random) -> bytes:
    """Return one of the seeds with up to `MAX_CHANGES` changes; one in twenty is nothing but random bytes."""
    if chance.random() < 0.05:
        return chance.randbytes(chance.randrange(64))
    data = bytearray(chance.choice(seeds))
    for _ in range(chance.randint(1, MAX_CHANGES)):
        _change(data, seeds, tokens, chance)
    return bytes(data)


def _change(data: bytearray, seeds: Sequence[bytes], tokens: Sequence[bytes], chance: random.Random) -> None:
    at = chance.randrange(len(data) + 1)
    kind = chance.randrange(8)
    if kind == 0 and at < len(data):
        data[at] ^= 1 << chance.randrange(8)
    elif kind == 1 and at < len(data):
        data[at] = chance.randrange(256)
    elif kind == 2:
        size = chance.choice((1, 2, 4, 8))
        data[at : at + size] = (chance.choice(NUMBERS) % (1 << 8 * size)).to_bytes(size, "big")
    elif kind == 3:
        data[at : at + chance.choice((0, 1))] = chance.choice(VARINTS)
    elif kind == 4:
        del data[at : at + chance.randrange(MAX_SPAN)]
    elif kind == 5:
        data[at:at] = data[at : at + chance.randrange(MAX_SPAN)] * chance.choice((1, 1, 2, 50))
    elif kind == 6 and tokens:
        data[at:at] = chance.choice(tokens)
    elif kind == 6:
        data[at:at] = chance.randbytes(chance.randrange(MAX_SPAN))
    else:
        other = chance.choice(seeds)
        begin = chance.randrange(len(other) + 1)
        data[at:] = other[begin:] if chance.random() < 0.5 else b""
