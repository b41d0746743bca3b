"""The facts that a newcomer relies on: one version number, one list of dependencies, tested versions, one set of checks."""

from __future__ import annotations

import ast
import hashlib
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from spark_producer import __version__
from spark_producer.protocol.negotiation import SOFTWARE_VERSION

ROOT = Path(__file__).resolve().parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
APACHE_2 = "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"
"""SHA-256 of https://www.apache.org/licenses/LICENSE-2.0.txt"""
OPTIONAL = {
    "confluent_kafka", "pyspark", "isal", "cryptography", "rocksdict", "shtab", "google", "grpc_tools",
    "jsonschema", "referencing",
}  # fmt: skip
"""Optional imports: for a Schema Registry, by the data source, for gzip, for PKCS12, for the broker's index, for completion, for
Protobuf and its compiler, and to validate JSON."""
NOT_PINNED = {"aws-msk-iam-sasl-signer-python"}
"""Only the extra msk installs it: its botocore wants an older python-dateutil than everything else."""
MAX_RELEASE_LINES = 60
"""Lines of a release in CHANGELOG.md: a screen."""
PINNED = re.compile(r"([a-z0-9][a-z0-9._-]*)==(\S+)")


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def dependencies() -> set[str]:
    return {Requirement(line).name for line in PROJECT["project"]["dependencies"]}


def everything_wanted() -> list[Requirement]:
    """All requirements of the package, its extras, its groups and its build."""
    lists = [PROJECT["project"]["dependencies"], PROJECT["build-system"]["requires"]]
    lists += PROJECT["project"]["optional-dependencies"].values()
    lists += PROJECT["dependency-groups"].values()
    lines = [line for one in lists for line in one if isinstance(line, str)]
    return [wanted for wanted in map(Requirement, lines) if wanted.name != "pyproducer"]


def constraints() -> dict[str, Version]:
    pinned = (PINNED.fullmatch(line) for line in text("constraints.txt").splitlines() if not line.startswith("#"))
    return {canonical(match[1]): Version(match[2]) for match in pinned if match}


# The version


def test_the_version_is_written_once() -> None:
    literal = f'"{__version__}"'
    sources = [*ROOT.glob("spark_producer/**/*.py"), ROOT / "pyproject.toml"]
    assert [path.name for path in sources if literal in path.read_text(encoding="utf-8")] == ["version.py"]
    assert __version__ == SOFTWARE_VERSION
    assert PROJECT["project"]["dynamic"] == ["version"]


def test_the_changelog_begins_with_this_version_and_each_release_fits_on_a_screen() -> None:
    page = text("CHANGELOG.md")
    released = re.findall(r"^## \[(.+?)\] - (\d{4}-\d\d-\d\d)$", page, re.MULTILINE)
    assert re.findall(r"^## .*$", page, re.MULTILINE) == [f"## [{version}] - {day}" for version, day in released]
    assert released[0][0] == __version__
    assert [day for _, day in released] == sorted((day for _, day in released), reverse=True)
    assert max(part.count("\n") for part in page.split("\n## ")) <= MAX_RELEASE_LINES


# Dependencies


def test_the_package_imports_what_it_depends_on_and_nothing_else() -> None:
    found: set[str] = set()
    for path in ROOT.glob("spark_producer/**/*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                found.add(node.module.partition(".")[0])
            elif isinstance(node, ast.Call) and _name(node.func) in ("import_module", "find_spec"):
                found |= {name.partition(".")[0] for name in map(_text, node.args) if name}
    found -= {*sys.stdlib_module_names, "spark_producer", "pyspark_pyproducer"}
    assert found == dependencies() | OPTIONAL


def _name(node: ast.expr) -> str:
    """The name of a function that is called, without that of its module."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _text(node: ast.expr) -> str:
    """The text that an argument is, or nothing."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def test_spark_comes_by_an_extra_alone() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    assert dependencies() & OPTIONAL == set()
    assert [Requirement(line).name for line in extras["spark"]] == ["pyspark"]
    assert "pyproducer[spark]" in extras["jobs"], "make quickstart is one command"


@pytest.mark.parametrize("page", ["docs/deploying.md", "docs/compatibility.md"])
def test_pages_that_list_the_dependencies_list_all_of_them(page: str) -> None:
    """Checks each paragraph, or row of a table, that names crc32c: a text names it only in a list of the dependencies."""
    reported = [part for part in re.split(r"\n\n|\n(?=\|)", text(page)) if re.search(r"\bcrc32c\b", part)]
    assert reported, f"{page} says nowhere what is needed"
    for part in reported:
        assert dependencies() <= set(re.findall(r"[a-z0-9]+", part)), part


# Versions that passed together


def test_spark_does_not_warn_of_the_pandas_that_setup_installs() -> None:
    """`pyspark` warns of pandas 3 whenever it starts (`require_minimum_pandas_version` of Spark 4.3)."""
    assert constraints()["pandas"].major < 3


def test_constraints_are_names_and_versions_and_cover_all_that_is_installed() -> None:
    lines = [line for line in text("constraints.txt").splitlines() if not line.startswith("#")]
    assert [line for line in lines if not PINNED.fullmatch(line)] == [], "no addresses, no options"
    assert lines == sorted(lines)
    pinned = constraints()
    assert len(pinned) == len(lines)
    assert {"pip"} <= set(pinned), "it resolves and builds the rest"
    for wanted in everything_wanted():
        if wanted.name in NOT_PINNED:
            continue
        assert canonical(wanted.name) in pinned, f"{wanted.name}: run `make constraints`"
        assert pinned[canonical(wanted.name)] in wanted.specifier, f"{wanted}: run `make constraints`"


def test_every_install_of_the_makefile_and_the_workflows_is_constrained() -> None:
    installs = [line for line in text("Makefile").splitlines() if re.search(r"pip (install|wheel) ", line)]
    assert len(installs) >= 5
    assert [line for line in installs if "$(CONSTRAIN" not in line and "$(PIP_VERSION)" not in line] == []
    for workflow in ROOT.glob(".github/workflows/*.yml"):
        for line in workflow.read_text(encoding="utf-8").splitlines():
            assert "pip install" not in line or "--require-hashes" in line, f"{workflow.name}: {line}"


# Who joins


def test_the_licence_is_apaches_verbatim() -> None:
    assert hashlib.sha256((ROOT / "LICENSE").read_bytes()).hexdigest() == APACHE_2
    assert (PROJECT["project"]["license"], PROJECT["project"]["license-files"]) == ("Apache-2.0", ["LICENSE"])


def test_commands_and_files_that_contributing_names_are_there() -> None:
    page = text("CONTRIBUTING.md")
    named = set(re.findall(r"[`$] ?make (?:clean )?([a-z-]+)", page))
    assert {"setup-dev", "test-fast", "lint", "wheel", "constraints"} <= named
    assert named <= set(re.findall(r"^([a-z-]+):", text("Makefile"), re.MULTILINE))
    files = set(re.findall(r"\b(?:tests|docs|spark_producer)/[\w/.]*\w", page))
    assert len(files) >= 3
    assert [name for name in files if not (ROOT / name).exists()] == []


def test_make_help_says_in_a_line_what_each_target_does() -> None:
    make_help = ["make", "--no-print-directory", "help"]
    shown = subprocess.run(make_help, cwd=ROOT, check=True, capture_output=True, text=True, timeout=60).stdout
    targets = re.findall(r"^([a-z-]+):.*## (.+)$", text("Makefile"), re.MULTILINE)
    assert [tuple(re.split(r" +", line, maxsplit=1)) for line in shown.splitlines()] == targets


def test_commits_are_checked_by_what_make_lint_runs() -> None:
    recipe = re.search(r"^lint:.*\n((?:\t.*\n)+)", text("Makefile"), re.MULTILINE)
    assert recipe
    lint = [line.strip().replace("$(BIN)", ".venv/bin") for line in recipe[1].splitlines()]
    assert re.findall(r"^ +entry: (.+)$", text(".pre-commit-config.yaml"), re.MULTILINE) == lint


def test_hosted_ci_runs_what_everybody_runs_on_the_oldest_python() -> None:
    workflow = text(".github/workflows/ci.yml")
    assert re.findall(r"- run: (.+)", workflow) == [".ci/run"]
    (python,) = re.findall(r'python-version: "(.+)"', workflow)
    assert PROJECT["project"]["requires-python"] == f">={python}"
    assert "timeout-minutes:" in workflow


def test_wheels_are_made_for_every_python_that_is_named() -> None:
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["project"]["classifiers"]))
    assert PROJECT["tool"]["cibuildwheel"]["build"] == [f"cp{named[0].replace('.', '')}-*"], "one wheel, for the oldest"
    assert PROJECT["tool"]["distutils"]["bdist_wheel"]["py-limited-api"] == f"cp{named[0].replace('.', '')}"
    assert all(module["py-limited-api"] for module in PROJECT["tool"]["setuptools"]["ext-modules"])
    assert all(version in SpecifierSet(PROJECT["project"]["requires-python"]) for version in named)
    assert ".ci/try_wheel.py" in PROJECT["tool"]["cibuildwheel"]["test-command"]
