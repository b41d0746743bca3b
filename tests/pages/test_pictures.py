"""The pictures of docs/how_it_works.md are those that are drawn, nothing in them overlaps, and all is seen in the dark, too."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path

import pytest

from docs.pictures.all import PICTURES
from docs.pictures.drawing import STYLE, Picture, Written, width_of, wrapped
from spark_producer.config import KAFKA_FIELDS, SINK_FIELDS

DOCS = Path(__file__).resolve().parents[2] / "docs"
drawn = pytest.mark.parametrize("name", PICTURES)


def overlap(one: Written, other: Written) -> bool:
    return (
        one.left < other.left + other.width
        and other.left < one.left + one.width
        and one.top < other.top + other.height
        and other.top < one.top + one.height
    )


@drawn
def test_a_picture_is_the_one_that_is_drawn(name: str) -> None:
    assert (DOCS / name).read_text(encoding="utf-8") == PICTURES[name]().svg(), "run `make docs`"


@drawn
def test_a_picture_is_on_the_page(name: str) -> None:
    (description,) = re.findall(rf"!\[([^\]]+)\]\({name}\)", (DOCS / "how_it_works.md").read_text(encoding="utf-8"))
    assert description == PICTURES[name]().title


@drawn
def test_no_texts_of_a_picture_overlap_or_leave_it(name: str) -> None:
    picture = PICTURES[name]()
    for one, other in combinations(picture.written, 2):
        assert not overlap(one, other), f"{one.text!r} and {other.text!r}"
    for one in picture.written:
        assert one.left >= 0, one.text
        assert one.left + one.width <= picture.width, one.text
        assert 0 <= one.top <= picture.height - one.height, one.text


@drawn
def test_everything_in_a_picture_has_a_colour_in_the_light_and_in_the_dark(name: str) -> None:
    light, dark = STYLE.split("@media (prefers-color-scheme: dark)")
    for kind in set(re.findall(r'class="(\w+)"', PICTURES[name]().svg())):
        for style in (light, dark):
            assert re.search(rf"\.{kind}\b[^{{}}]*{{[^}}]*(fill|stroke): #", style), kind


@drawn
def test_the_options_in_a_picture_exist(name: str) -> None:
    written = " ".join(one.text for one in PICTURES[name]().written)
    for option in re.findall(r"\b[a-z]+(?:\.[a-z]+)+\b", written):
        assert option in {*KAFKA_FIELDS, *SINK_FIELDS}


def test_texts_that_do_not_fit_are_an_error() -> None:
    picture = Picture("a test", 200, 100)
    picture.text(10, 20, "fits")
    assert picture.written[0].width == width_of("fits") < 40
    with pytest.raises(ValueError, match="'does not fit' does not fit"):
        picture.text(180, 20, "does not fit")
    with pytest.raises(ValueError, match="'Does not fit' does not fit"):
        picture.box("plain", 0, 0, 80, 90, "Does not fit")
    with pytest.raises(ValueError, match="too low for its text"):
        picture.box("plain", 0, 0, 120, 60, "Box", "more words than three lines of it can hold")
    with pytest.raises(ValueError, match="is wider than 30"):
        wrapped("incomprehensibilities", 30)


def test_lines_are_as_long_as_their_box_allows() -> None:
    assert wrapped("one two three", width_of("one two")) == ["one two", "three"]
    assert wrapped("one two three", width_of("one two") - 1) == ["one", "two", "three"]
