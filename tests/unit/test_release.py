"""What a release is built with is pinned, what it is built from gives equal bytes, and changes have a form."""

from __future__ import annotations

import io
import re
import tarfile
from pathlib import Path
from runpy import run_path
from typing import Any

import pytest

from spark_producer import __version__
from tests.support.distribution import RELEASE, ROOT
from tests.unit.test_project import PROJECT, canonical, constraints, text

CHANGES: dict[str, Any] = run_path(str(ROOT / ".ci" / "check_changes.py"))
PINNED_ACTION = re.compile(r"uses: [\w.-]+/[\w.-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def test_every_action_is_pinned_by_its_commit() -> None:
    lines = [line.strip().removeprefix("- ") for path in WORKFLOWS for line in path.read_text("utf-8").splitlines()]
    used = [line for line in lines if line.startswith("uses:")]
    assert len(used) >= 10
    assert [line for line in used if not PINNED_ACTION.fullmatch(line)] == []


def test_nothing_is_published_before_the_owner_agrees() -> None:
    jobs = re.split(r"^  (?=\w+:$)", text(".github/workflows/release.yml"), flags=re.MULTILINE)
    (publish,) = [job for job in jobs if "gh-action-pypi-publish" in job]
    assert "environment: release" in publish
    (page,) = [job for job in jobs if "gh release create" in job]
    assert "needs: publish" in page
    assert not any("password:" in job or "secrets." in job for job in jobs)


@pytest.mark.parametrize("name", ["build-requirements.txt", "release-requirements.txt"])
def test_the_tools_of_releases_are_those_of_the_constraints_and_have_hashes(name: str) -> None:
    blocks = re.split(r"^(?=[a-z])", text(f".ci/{name}"), flags=re.MULTILINE)[1:]
    pinned = {canonical(block.split("==")[0]): re.split(r"[ ;\\]", block.split("==")[1])[0] for block in blocks}
    assert all("--hash=sha256:" in block for block in blocks)
    assert {"setuptools", "cython"} <= set(pinned)
    known = {each: str(version) for each, version in constraints().items()}
    assert {each: known.get(each) for each in pinned} == pinned, "run `make constraints`"


def test_the_recipe_is_of_this_version() -> None:
    assert re.findall(r"^  version: ([\d.rc]+) ", text("conda/recipe.yaml"), re.MULTILINE) == [__version__]


def archive(names: list[str], mtime: int) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as file:
        for name in names:
            entry = tarfile.TarInfo(name)
            entry.mtime, entry.uid, entry.uname, entry.size = mtime, mtime % 1000, "builder", len(name)
            file.addfile(entry, io.BytesIO(name.encode()))
    return made.getvalue()


def test_source_archives_of_equal_files_have_equal_bytes(tmp_path: Path) -> None:
    first, second = tmp_path / "1.tar.gz", tmp_path / "2.tar.gz"
    first.write_bytes(archive(["p/a", "p/b"], 1_000_000_123))
    second.write_bytes(archive(["p/b", "p/a"], 1_700_000_456))
    assert RELEASE["normalised"](first) == RELEASE["normalised"](second)
    with tarfile.open(fileobj=io.BytesIO(RELEASE["normalised"](first))) as file:
        assert [(each.name, each.mtime) for each in file] == [("p/a", RELEASE["epoch"]()), ("p/b", RELEASE["epoch"]())]


def test_every_change_has_the_form_that_lint_asks_for() -> None:
    assert CHANGES["main"]() == 0
    assert CHANGES["kinds"]() == [kind["directory"] for kind in PROJECT["tool"]["towncrier"]["type"]]
    page = text("CONTRIBUTING.md")
    assert all(f"`{kind}`" in page for kind in CHANGES["kinds"]())


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("faster.write.md", "Writes are faster.\n", ""),
        ("faster.speed.md", "Writes are faster.\n", "its name is not"),
        ("faster.md", "Writes are faster.\n", "its name is not"),
        ("faster.write.md", "Writes are faster\n", "does not end with a full stop"),
        ("faster.write.md", "Writes\n\nare faster.\n", "empty line"),
        ("faster.write.md", "* Writes are faster.\n", "begins with a heading or a list"),
        ("faster.write.md", "Writes " * 30 + ".\n", "more than 4 lines"),
    ],
)
def test_what_is_wrong_with_a_change_is_named(name: str, content: str, problem: str) -> None:
    found = CHANGES["problems"](name, content, CHANGES["kinds"]())
    assert problem in " ".join(found)
    assert bool(found) == bool(problem)
