"""The house rules that a machine can check: sizes, what importing costs, what never raises.

Which package may import what is said by the contracts in pyproject.toml, which `make lint` checks.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "spark_producer"
MODULES = sorted(PACKAGE.rglob("*.py"))
SOURCES = [
    path
    for folder in ("spark_producer", "pyspark_pyproducer", "jobs", "benchmarks", "tests")
    for path in sorted((ROOT / folder).rglob("*.py"))
]
COMPILED = sorted([*PACKAGE.rglob("*.pyx"), *PACKAGE.rglob("*.pxd")])
STUBS = sorted(PACKAGE.rglob("*.pyi"))
LONG_FILE = 400
"""Lines from which on a file may hold two concepts. That is for people to judge: the ids of the test name such files."""
MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 60
SECONDS = 60


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def length(path: Path) -> int:
    return path.read_text(encoding="utf-8").count("\n")


def by_folder(paths: Sequence[Path]) -> list[list[Path]]:
    """The files of each folder: a test for each of a thousand files takes longer than to look at them."""
    folders: dict[Path, list[Path]] = {}
    for path in paths:
        folders.setdefault(path.parent, []).append(path)
    return list(folders.values())


def name_of_folder(paths: Sequence[Path]) -> str:
    return name_of(paths[0].parent)


def name_and_length(path: Path) -> str:
    """As `name_of`, with the lines: `pytest -v -k "one and concept"` lists the long files."""
    return f"{name_of(path)}: {length(path)} lines, one concept?"


@lru_cache(maxsize=1)
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """All functions of a file, looked for in statements only: `ast.walk` takes longer over expressions than to parse the file."""
    left: list[ast.AST] = [parsed(path)]
    while left:
        node = left.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
        for block in ("body", "orelse", "finalbody", "handlers", "cases"):
            left += getattr(node, block, ())


def python(code: str, *first_on_path: Path) -> subprocess.CompletedProcess[str]:
    """`code` in a new interpreter, with nothing of this one's state."""
    paths = [str(path) for path in first_on_path] + [str(ROOT)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", f"import sys; sys.path[:0] = {paths!r}; {code}"],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        env=environment,
        check=False,
    )


def test_there_is_something_to_check() -> None:
    assert len(MODULES) > 40
    assert len(SOURCES) > 80


@pytest.mark.parametrize("path", [path for path in SOURCES + COMPILED if length(path) > LONG_FILE], ids=name_and_length)
def test_files_are_short(path: Path) -> None:
    lines = length(path)
    assert lines <= MAX_FILE_LINES, (
        f"{lines} lines: a file holds one concept, and no concept takes more than {MAX_FILE_LINES}"
    )


@pytest.mark.parametrize("paths", by_folder(SOURCES), ids=name_of_folder)
def test_functions_are_short(paths: list[Path]) -> None:
    for path in paths:
        for function in functions(path):
            lines = (function.end_lineno or function.lineno) - function.lineno + 1
            assert lines <= MAX_FUNCTION_LINES, f"{name_of(path)}, {function.name}: {lines} lines"


@pytest.mark.parametrize("folder", sorted({path.parent for path in MODULES}), ids=name_of)
def test_a_package_says_what_it_owns(folder: Path) -> None:
    docstring = ast.get_docstring(parsed(folder / "__init__.py")) or ""
    assert "Owns:" in docstring
    assert "ust not know" in docstring


@pytest.mark.parametrize("paths", by_folder(MODULES), ids=name_of_folder)
def test_a_module_says_what_it_is_and_every_function_is_annotated(paths: list[Path]) -> None:
    for path in paths:
        check_annotations(path)


def check_annotations(path: Path) -> None:
    assert ast.get_docstring(parsed(path)), f"{name_of(path)}: a module opens with a sentence that says what it is"
    for function in functions(path):
        arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
        bare = [
            argument.arg
            for argument in arguments
            if argument.annotation is None and argument.arg not in ("self", "cls")
        ]
        assert not bare, f"{name_of(path)}, {function.name}: {bare}"
        assert function.returns is not None, f"{name_of(path)}, {function.name}"


BOUND_PREFIX = re.compile(r"\b_?(MOST|LEAST|LONGEST|SHORTEST|LARGEST|SMALLEST|FEWEST)_[A-Z0-9_]+\b")
"""Beginnings of names of constants that are `MAX_` or `MIN_`, as Kafka's settings and Python's libraries call them."""


def test_bounds_are_called_max_and_min() -> None:
    texts = {path: path.read_text(encoding="utf-8") for path in [*SOURCES, *COMPILED, *STUBS]}
    found = {f"{name_of(path)}: {found[0]}" for path, text in texts.items() for found in BOUND_PREFIX.finditer(text)}
    assert not found


@pytest.mark.parametrize("paths", by_folder(MODULES + COMPILED + STUBS), ids=name_of_folder)
def test_what_a_module_cites_is_there_for_its_readers(paths: list[Path]) -> None:
    """Comments and docstrings cite a KIP, an RFC, a class of Kafka's or a page of docs/, not notes that only builders had."""
    for path in paths:
        cited = re.findall(r"(?:\bspec\b[:/]|seeds/)\S*", path.read_text(encoding="utf-8"))
        assert not cited, f"{name_of(path)}, {cited}: cite the KIP, the RFC, Kafka's class or a page of docs/"


def test_importing_the_package_is_cheap() -> None:
    code = (
        "before = set(sys.modules); import spark_producer; "
        "dear = {'pyspark', 'numpy', 'pyarrow', 'asyncio', 'pandas'} & (set(sys.modules) - before); "
        "assert not dear, dear; assert spark_producer.errors.PyProducerError"
    )
    done = python(code)
    assert done.returncode == 0, done.stderr


def test_the_public_names_are_there_need_no_pyspark_and_others_are_not() -> None:
    code = (
        "import spark_producer; "
        "assert all(getattr(spark_producer, name) for name in spark_producer.__all__); "
        "from spark_producer.broker import LocalBroker; "
        "assert not hasattr(spark_producer, 'nonsense'); "
        "assert 'pyspark' not in sys.modules"
    )
    done = python(code)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "broken",
    ["raise ImportError('no numpy')", "this is no python", "raise RuntimeError('anything')", "1 / 0", None],
    ids=["import error", "syntax error", "runtime error", "division", "nothing there"],
)
def test_sparks_lookup_of_other_sources_survives_a_broken_installation(broken: str | None, tmp_path: Path) -> None:
    """Spark imports every module named pyspark_*: one that raises makes all Python data sources vanish."""
    package = tmp_path / "spark_producer"
    package.mkdir()
    (package / "__init__.py").write_text(broken or "", encoding="utf-8")
    done = python("import pyspark_pyproducer; assert not hasattr(pyspark_pyproducer, 'DefaultSource')", tmp_path)
    assert done.returncode == 0, done.stderr
