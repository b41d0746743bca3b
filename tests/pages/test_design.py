"""docs/design.md agrees with the code: its picture is that of the contracts, and every file, name and option exists."""

from __future__ import annotations

import re
from itertools import chain
from pathlib import Path

import pytest

from docs.packages import Package, packages, packages_picture
from spark_producer.config import KAFKA_FIELDS

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "spark_producer"
DESIGN = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
MARKED = sorted(set(re.findall(r"`([^`\s]+)`", DESIGN)))
FILES = [text for text in MARKED if "/" in text or re.search(r"\.(py|pyx|md|toml)$", text)]
OPTIONS = [text for text in MARKED if re.fullmatch(r"[a-z]+(\.[a-z]+)+", text) and text not in FILES]
NAMES = [text for text in MARKED if text not in FILES + OPTIONS and re.fullmatch(r"_?[A-Za-z]\w*(\.\w+)*", text)]

MODULES = {
    "pyspark": r"pyspark",
    "sockets": r"(socket|ssl|selectors)",
    "TLS": r"ssl",
    "threads": r"(threading|_thread|multiprocessing)",
    "clock": r"(time|datetime)",
}


@pytest.fixture(scope="module")
def names() -> set[str]:
    """Every word of the package and of what describes it to tools."""
    sources = chain(PACKAGE.rglob("*.py"), PACKAGE.rglob("*.pyx"), [ROOT / "pyproject.toml", ROOT / "Makefile"])
    return {name for source in sources for name in re.findall(r"\w+", source.read_text(encoding="utf-8"))}


def test_the_picture_of_the_packages_is_that_of_the_contracts() -> None:
    assert (ROOT / "docs" / "packages.svg").read_text(encoding="utf-8") == packages_picture(), "run `make docs`"


def test_the_picture_has_every_package_once() -> None:
    there = {path.stem for path in PACKAGE.iterdir() if (path.is_dir() or path.suffix == ".py") and path.stem[0] != "_"}
    drawn = [package.name for line in packages() for package in line]
    assert sorted(drawn) == sorted({*there, "__main__"})


USERS = [package for line in packages() for package in line if package.uses]


@pytest.mark.parametrize("package", USERS, ids=lambda package: package.name)
def test_a_package_may_use_only_what_it_uses(package: Package) -> None:
    """A package that a contract forgets to name may do anything, and would show in the picture."""
    files = [*(PACKAGE / package.name).rglob("*.py"), *PACKAGE.glob(f"{package.name}.py")]
    source = "\n".join(file.read_text(encoding="utf-8") for file in files)
    for thing in package.uses:
        assert re.search(rf"^ *(import|from) {MODULES[thing]}\b", source, re.MULTILINE), thing


@pytest.mark.parametrize("file", FILES)
def test_every_file_of_the_design_is_there(file: str) -> None:
    assert (PACKAGE / file).exists() or (ROOT / file).exists()


@pytest.mark.parametrize("option", OPTIONS)
def test_every_option_of_the_design_is_there(option: str) -> None:
    assert option in KAFKA_FIELDS


@pytest.mark.parametrize("name", NAMES)
def test_every_name_of_the_design_is_there(name: str, names: set[str]) -> None:
    assert set(name.split(".")) <= names
