"""The pages about trust name tests that exist, packages that are needed, and addresses that exist."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from docs.licences import UNKNOWN, canonical, rows_before, wanted
from tests.unit.test_test_ids import ids_by_test

ROOT = Path(__file__).resolve().parents[2]
CVE = re.compile(r"CVE-(?:19|20)\d\d-\d{4,6}")
KNOWN_HOSTS = {"keepachangelog.com", "semver.org", "example.com"}
"""Hosts of links in the pages for those who join."""


def rows(page: str) -> list[list[str]]:
    """Return the rows of all tables of a page that have three cells or more, without their headings."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    found = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in re.findall(r"^\| .*$", text, re.M)]
    return [row for row in found if len(row) >= 3 and row[-1] != "test"]


@pytest.mark.parametrize("page", ["threat_model.md", "cves.md"])
def test_every_test_that_a_row_names_exists(page: str) -> None:
    named = [name for row in rows(page) for name in re.findall(r"`([\w/]+\.py::\w+)`", row[-1].strip("| "))]
    assert len(named) > 20
    for test in named:
        file, _, name = test.partition("::")
        assert (ROOT / "tests" / file).is_file(), test
        assert name in ids_by_test(ROOT / "tests" / file), f"there is no {test}"


def test_every_weakness_is_there_once_with_a_test_or_a_reason() -> None:
    listed = [(CVE.findall(row[0]), row[-1].strip("| ")) for row in rows("cves.md")]
    ids = [each for found, _ in listed for each in found]
    assert len(ids) == len(set(ids)) > 30
    for found, test in listed:
        assert found
        assert "::" in test or re.match(r"none: .{10,}", test), f"{found}: neither a test nor a reason"


def test_the_licences_of_all_that_is_needed_are_known() -> None:
    listed = rows_before()
    assert {canonical(each.name) for _, each in wanted()} - {"pyproducer"} <= set(listed), "run `make licences`"
    assert UNKNOWN not in listed.values()


def test_the_page_names_each_package_that_is_always_needed_and_under_the_lgpl() -> None:
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    names = {re.split(r"[^\w-]", line)[0] for line in needed}
    page = (ROOT / "docs" / "licences.md").read_text(encoding="utf-8")
    copyleft = {name for name, licence in rows_before().items() if "GPL" in licence}
    assert copyleft & names == {"crc32c"} == copyleft
    assert "## crc32c is under the LGPL" in page


@pytest.mark.parametrize("page", ["SECURITY.md", "CONTRIBUTING.md"])
def test_pages_for_those_who_join_name_no_address_that_may_not_exist(page: str) -> None:
    """Neither a mailbox nor a repository's address: both are the owner's to choose."""
    text = (ROOT / page).read_text(encoding="utf-8")
    assert re.findall(r"[\w.+-]+@[\w-]+\.\w+", text) == []
    assert set(re.findall(r"https?://([\w.-]+)", text)) <= KNOWN_HOSTS
    assert "Report a vulnerability" in text or "SECURITY.md" in text
