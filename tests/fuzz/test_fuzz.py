"""The fuzzer itself, and what it once found: every input of the corpus, and some hundred new ones of each target."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from tests.fuzz import page
from tests.fuzz.campaign import run
from tests.fuzz.mutation import CHUNK, inputs
from tests.fuzz.target import CORPUS, Target, kept_inputs
from tests.fuzz.targets import TARGETS

INPUTS = 300
KEPT = [(target, path) for target in TARGETS.values() for path in kept_inputs(target)]


@pytest.mark.parametrize(("target", "path"), KEPT, ids=lambda each: each.name)
def test_what_was_once_found_is_read_or_refused(target: Target, path: Path) -> None:
    target.run([path.read_bytes()])


@pytest.mark.parametrize("target", TARGETS.values(), ids=list(TARGETS))
def test_good_and_damaged_bytes_are_read_or_refused(target: Target) -> None:
    seeds = target.seeds()
    assert seeds
    target.run([*seeds, b"", *itertools.islice(inputs(seeds, target.tokens, 1), INPUTS)])


def test_every_folder_of_the_corpus_is_of_a_target() -> None:
    assert {path.name for path in CORPUS.iterdir() if path.is_dir()} <= set(TARGETS)


def test_an_input_follows_from_its_number() -> None:
    seeds, first = [b"some bytes", b"others"], 2 * CHUNK + 7
    some = list(itertools.islice(inputs(seeds, (b"token",), 5), first + 3))
    assert list(itertools.islice(inputs(seeds, (b"token",), 5, first), 3)) == some[first:]
    assert len(set(some)) > CHUNK


@pytest.mark.slow
def test_a_run_counts_its_inputs_and_goes_on_after_them() -> None:
    target = TARGETS["properties"]
    assert run(target, seed=1, first=0, count=500, seconds=60)[::2] == (500, "")
    assert run(target, seed=1, first=500, count=20, seconds=60).inputs == 20


def test_the_page_has_a_row_for_each_target() -> None:
    text = page.PAGE.read_text(encoding="utf-8")
    assert page.table(page.load(), TARGETS) in text, "run `make fuzz ARGS=--note`"
