"""The address of the documentation in help texts."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from spark_producer.cli import pages
from spark_producer.cli.entry import main
from spark_producer.cli.pages import INSTALLED, find_pages

ROOT = Path(__file__).parents[3]


def put(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "index.md").touch()
    return folder


def test_pages_of_a_checkout_of_an_environment_and_beside_the_package(tmp_path: Path) -> None:
    package = tmp_path / "library" / "spark_producer"
    prefix = str(tmp_path / "environment")
    assert find_pages(package, prefix) is None
    beside = put(package.parent / INSTALLED)  # pip install --target
    assert find_pages(package, prefix) == beside
    installed = put(Path(prefix) / INSTALLED)
    assert find_pages(package, prefix) == installed
    checkout = put(package.parent / "docs")
    assert find_pages(package, prefix) == checkout
    assert find_pages() == ROOT / "docs"


@pytest.mark.parametrize("arguments", [["txn", "--help"], ["tail", "--help"], ["options"]])
def test_who_reads_of_pages_learns_where_they_are(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with contextlib.suppress(SystemExit):
        main(arguments)
    message = capsys.readouterr().out
    assert "docs/" in message
    assert message.endswith(f"The pages docs/… are in {ROOT / 'docs'}.\n")


def test_without_pages_the_help_does_not_name_them(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "find_pages", lambda: None)
    main(["options"])
    assert "The pages" not in capsys.readouterr().out
