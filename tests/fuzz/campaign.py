"""Gives one target many damaged inputs, in a process of its own, and finds the input of a failure, a crash or a hang."""

from __future__ import annotations

import hashlib
import itertools
import multiprocessing
import resource
import time
import traceback
from multiprocessing.sharedctypes import RawArray
from typing import Any, NamedTuple

from tests.fuzz.mutation import inputs
from tests.fuzz.target import CORPUS, Target

MAX_HANG_S = 60.0
"""Maximum seconds that a group of inputs may take. The decoders need microseconds for each."""
MAX_MEMORY = 2 << 30
"""Maximum bytes that a process of the fuzzer may allocate beyond what it has when it begins."""
POLL_S = 0.1
GROUP = 200
"""Inputs that a target gets at a time."""
CONTEXT = multiprocessing.get_context("spawn")
RUNNING, DONE, FAILED = 0, 1, 2


class Outcome(NamedTuple):
    """The inputs that a target was given, the seconds that they took, and the finding: the reason and the input, or empty."""

    inputs: int
    seconds: float
    finding: str = ""
    input: bytes = b""


def run(target: Target, *, seed: int, first: int, count: int, seconds: float) -> Outcome:
    """Give a target the inputs `first` to `first + count` of `seed`, but no more than fit into `seconds`."""
    shared = RawArray("q", [first, RUNNING, 0])
    process = CONTEXT.Process(target=_decode_all, args=(target, seed, first, count, seconds, shared))
    process.start()
    hung = _watch(process, shared)
    number, state, spent = shared[0], shared[1], shared[2] / 1e6
    if state == DONE:
        return Outcome(number - first, spent)
    group = list(itertools.islice(inputs(target.seeds(), target.tokens, seed, number), GROUP))
    if state == FAILED:
        bad, reason = _first_bad(target, group)
        return Outcome(number - first, spent, reason, bad)
    if count > 1:
        return _one_by_one(target, seed, number, min(GROUP, first + count - number), Outcome(number - first, spent))
    reason = f"no result after {MAX_HANG_S:g} s" if hung else f"the process ended with {process.exitcode}"
    return Outcome(0, spent, reason, group[0])


def _one_by_one(target: Target, seed: int, first: int, count: int, before: Outcome) -> Outcome:
    """Find the input within a group that ends a process or has no end: each gets a process of its own."""
    for number in range(first, first + count):
        found = run(target, seed=seed, first=number, count=1, seconds=MAX_HANG_S)
        if found.finding:
            return found._replace(inputs=before.inputs + number - first, seconds=before.seconds)
    return before._replace(finding="a group of inputs ended the process, and none of them alone does", input=b"")


def _watch(process: Any, shared: Any) -> bool:
    """Wait for the end of the process; return whether it was killed since one input had no end."""
    seen, since = -1, time.monotonic()
    while process.is_alive():
        process.join(POLL_S)
        if shared[0] != seen:
            seen, since = shared[0], time.monotonic()
        elif time.monotonic() - since > MAX_HANG_S:
            process.kill()
            process.join()
            return True
    return False


def _decode_all(target: Target, seed: int, first: int, count: int, seconds: float, shared: Any) -> None:
    """Decode inputs until one fails. `shared` is the number of the latest input, the state, and the microseconds."""
    seeds = target.seeds()
    target.run(seeds)  # loads what is loaded on first use
    found = inputs(seeds, target.tokens, seed, first)
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    resource.setrlimit(resource.RLIMIT_DATA, (used + MAX_MEMORY, resource.RLIM_INFINITY))
    began, last = time.monotonic(), first + count
    while shared[0] < last and shared[2] < seconds * 1e6:
        try:
            target.run(list(itertools.islice(found, min(GROUP, last - shared[0]))))
        except Exception:
            shared[1] = FAILED
            return
        shared[0] = min(shared[0] + GROUP, last)
        shared[2] = int((time.monotonic() - began) * 1e6)
    shared[1] = DONE


def _first_bad(target: Target, group: list[bytes]) -> tuple[bytes, str]:
    """Return the first input of a group that fails on its own, with its traceback; if none does, all of them in a row."""
    for data in group:
        if failure := _failure_of(target, [data]):
            return data, failure
    return b"".join(group), _failure_of(target, group) or "the failure does not repeat"


def _failure_of(target: Target, group: list[bytes]) -> str:
    """Return the traceback of inputs that fail; empty if they do not."""
    try:
        target.run(group)
    except Exception:
        return traceback.format_exc()
    return ""


def keep(target: Target, data: bytes) -> str:
    """Write an input into the corpus, which every run of the tests decodes; return its name."""
    path = CORPUS / target.name / f"{hashlib.sha256(data).hexdigest()[:16]}.bin"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path.relative_to(CORPUS).as_posix()
