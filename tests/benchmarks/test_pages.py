"""The pages of the benchmarks: headlines first, each part from what was stored of it last."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from matplotlib.axes import Axes

from benchmarks import __main__ as command
from benchmarks.headlines import Headline, draw, table
from benchmarks.pages import folder_of, write_pages
from benchmarks.part import Measured, Part, load, store
from benchmarks.parts import PARTS, named
from benchmarks.scenes import all_scenes

FAST = Headline("Bulk", "million records/s", 4.23, {"Spark's sink": 2.06, "a loop": 0.1}, lower_is_better=False)
SLOW = Headline("Trigger", "ms", 44.0, {"Spark's sink": 28.0}, lower_is_better=True)


def part(name: str, *, sister: str = "", headline: Headline = FAST, notes: str = "") -> Part:
    """Return a part whose page shows the stored number of rows."""

    def picture(_: Mapping[str, Any], path: Path) -> None:
        path.write_text(f"picture of {name}")

    return Part(
        name, f"Title of {name}", run=lambda options: {"rows": options.rows}, page=lambda results: f"{results['rows']} rows",
        headlines=lambda _: [headline], draw=picture if sister else None, notes=notes, sister=sister,
    )  # fmt: skip


def test_the_table_has_the_figure_and_what_it_is_of_each_other() -> None:
    even = Headline("Wait", "ms", 10.0, {"Spark's sink": 10.2}, lower_is_better=True)
    assert table([FAST, SLOW, even, alone(SLOW)])[2:] == [
        "| Bulk | **4.23 million records/s** | 2.1× faster than Spark's sink (2.06), 42× faster than a loop (0.10) |",
        "| Trigger | **44.0 ms** | 1.6× slower than Spark's sink (28.0) |",
        "| Wait | **10.0 ms** | as fast as Spark's sink (10.2) |",
        "| Trigger | **44.0 ms** |  |",
    ]


def alone(headline: Headline) -> Headline:
    return Headline(headline.title, headline.unit, headline.ours, {}, headline.lower_is_better)


def test_the_picture_has_a_panel_for_each_headline_with_ratios(tmp_path: Path) -> None:
    draw([FAST, SLOW, alone(SLOW)], tmp_path / "plot.svg")
    reported = re.findall(r"<!-- (.*?) -->", (tmp_path / "plot.svg").read_text())
    assert [text for text in reported if "better" in text] == [
        "million records/s, more is better", "ms, less is better", "ms, less is better",
    ]  # fmt: skip
    assert [text for text in reported if "pyproducer is" in text] == [
        "2.06   pyproducer is 2.1× faster", "0.10   pyproducer is 42× faster", "28.0   pyproducer is 1.6× slower",
    ]  # fmt: skip
    assert {"Bulk", "Trigger", "4.23", "44.0"} <= set(reported)


def test_a_long_title_is_broken_instead_of_cut(tmp_path: Path) -> None:
    title = "Twelve words " * 5
    draw([Headline(title, "ms", 1.0, {}, lower_is_better=True)], tmp_path / "plot.svg")
    lines = [line for line in re.findall(r"<!-- (.*?) -->", (tmp_path / "plot.svg").read_text()) if "words" in line]
    assert " ".join(lines) == title.strip()
    assert len(lines) == 2


def test_every_bar_is_as_long_as_its_number_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lengths: list[list[float]] = []
    real = Axes.barh

    def noted(self: Axes, places: Any, values: Any, *more: Any, **named: Any) -> Any:
        lengths.append(list(values))
        return real(self, places, values, *more, **named)

    monkeypatch.setattr(Axes, "barh", noted)
    draw([Headline("Rate", "k/s", 400.0, {"other": 10.0}, lower_is_better=False)], tmp_path / "plot.svg")
    assert lengths == [[400.0, 10.0]]


def test_the_picture_is_seen_in_the_dark(tmp_path: Path) -> None:
    """Every colour of the light picture has another one there, and the ground is the page's own."""
    draw([FAST], tmp_path / "plot.svg")
    svg = (tmp_path / "plot.svg").read_text()
    light = {found.lower() for found in re.findall(r"(?:fill|stroke): (#[0-9a-f]{6})", svg)}
    style = svg.partition("<style>@media (prefers-color-scheme: dark)")[2].partition("</style>")[0]
    assert light
    assert all(f"fill: {colour}" in style for colour in light)


def test_the_main_page_begins_with_the_headlines_of_all_parts(tmp_path: Path) -> None:
    page = tmp_path / "benchmarks.md"
    parts = [
        part("one", notes="How to read."), part("two", notes="How to read."),
        part("three", sister="page_three.md", headline=SLOW),
        part("never measured"),
    ]  # fmt: skip
    for number, measured in enumerate(parts[:3]):
        store(folder_of(page), measured.name, Measured({"pyproducer": f"commit {number}"}, {"rows": number}))
    write_pages(parts, page)
    text = page.read_text()
    assert text.startswith("# Benchmarks\n\n![")
    head, _, sections = text.partition("\n## ")
    assert head.index("benchmarks_headlines.svg") < head.index("| Bulk |") < head.index("| Trigger |")
    assert (folder_of(page) / "benchmarks_headlines.svg").exists()
    assert text.count("How to read.") == 1
    assert text.index("## Title of two") < text.index("## How they are made") < text.index("How to read.")
    assert "[Title of three](page_three.md)" in text
    assert "Title of one\n\n0 rows\n\n<sub>Measured with pyproducer commit 0.</sub>" in sections
    assert "## Title of two\n\n1 rows" in sections
    assert "never measured" not in text
    sister = (tmp_path / "page_three.md").read_text()
    assert sister.startswith("# Title of three\n")
    assert "![Title of three](results/page_three.svg)\n\n2 rows" in sister
    assert (folder_of(page) / "page_three.svg").read_text() == "picture of three"


def test_a_part_alone_is_measured_again_and_the_others_stay(tmp_path: Path) -> None:
    page = tmp_path / "benchmarks.md"
    commits = iter(["first", "second", "third"])
    run = partial(command.main, parts=[part("one"), part("two")], conditions=lambda: {"pyproducer": next(commits)})
    run(["--out", str(page), "--rows", "10"])
    run(["--out", str(page), "--rows", "20", "--parts", "two"])
    assert load(folder_of(page), "one") == Measured({"pyproducer": "first"}, {"rows": 10})
    assert load(folder_of(page), "two") == Measured({"pyproducer": "third"}, {"rows": 20})
    before = page.read_text()
    assert "10 rows\n\n<sub>Measured with pyproducer first.</sub>" in before
    assert "20 rows\n\n<sub>Measured with pyproducer third.</sub>" in before
    page.unlink()
    run(["--out", str(page), "--pages"])
    assert page.read_text() == before


def test_parts_are_chosen_by_name() -> None:
    assert named([]) == list(PARTS)
    assert [one.name for one in named(["imports", "small"])] == ["small", "imports"]
    assert [one.name for one in named(["bulk"])] == list(all_scenes(8))
    with pytest.raises(ValueError, match=r"unknown parts nonsense; there are: bulk, small, .*imports"):
        named(["bulk", "nonsense"])
    assert len({one.name for one in PARTS}) == len(PARTS)


def test_what_leaves_contenders_out_does_not_go_into_the_documentation(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.arguments(["--only", "spark"])
    assert "give --out as well" in capsys.readouterr().err


@pytest.mark.parametrize(
    "content", [b"", b'{"facts": {}, "resu', b"[]", b'{"facts": {}}', b'{"facts": 1, "results": {}}', b"\xff"]
)
def test_a_damaged_file_is_named(tmp_path: Path, content: bytes) -> None:
    path = store(tmp_path, "one", Measured({}, {}))
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"{re.escape(str(path))} is damaged .*: take it away, .*--parts one"):
        load(tmp_path, "one")


def test_a_run_that_is_interrupted_leaves_what_was_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store(tmp_path, "one", Measured({}, {"rows": 1}))

    def write_half(path: Path, text: str, **_: object) -> int:
        path.write_bytes(text.encode()[:10])
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "write_text", write_half)  # Ctrl-C strikes when it likes
    with pytest.raises(KeyboardInterrupt):
        store(tmp_path, "one", Measured({}, {"rows": 2}))
    assert load(tmp_path, "one") == Measured({}, {"rows": 1})
