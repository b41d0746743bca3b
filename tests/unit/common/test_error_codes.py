"""The one table of Kafka's error codes agrees with other clients' tables, and no other module has numbers of its own."""

from __future__ import annotations

import ast
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from spark_producer.common.error_codes import Action, Code
from tests.unit.test_layout import ROOT, by_folder, name_of, name_of_folder, parsed

CHECKED = [
    path
    for folder in ("spark_producer", "pyspark_pyproducer", "jobs", "benchmarks")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if path != ROOT / "spark_producer" / "common/error_codes.py"
]


def test_names_and_retries_are_those_of_kafka() -> None:
    """Names and retriability are those of kio, made from Kafka's source; the two that differ have own rules in the sender."""
    others: dict[int, ErrorCode] = {int(code): code for code in ErrorCode}
    assert set(Code) <= set(others)
    for code in Code:
        assert code.name.lower() == others[code].name
        if code not in (Code.OUT_OF_ORDER_SEQUENCE_NUMBER, Code.REBOOTSTRAP_REQUIRED):
            assert (Action.RETRY in code.action) == others[code].retriable, code.name


def test_every_number_stands_once() -> None:
    assert len(Code.__members__) == len(Code), "an alias would be a second name for one number"
    assert list(Code) == sorted(Code), "the rows stand in the order of their numbers"


@pytest.mark.parametrize("code", Code, ids=lambda code: code.name)
def test_every_row_of_the_table_is_whole(code: Code) -> None:
    assert Code(int(code)) is code
    assert code.name == code.name.upper()
    assert bool(code.advice) == (code is not Code.NONE)
    assert not (Action.RETRY in code.action and Action.FATAL in code.action)
    if Action.REFRESH_METADATA in code.action:
        assert Action.RETRY in code.action


RETRY_AND_REFRESH = {3, 5, 6, 9, 13, 56, 72, 74, 80, 83, 84, 100, 103}
RETRY = {2, 7, 14, 15, 16, 19, 20, 41, 51, 75, 78, 88, 89}
FAIL = {-1, 17, 18, 21, 29, 32, 42, 43, 44, 76, 87, 47, 120, 48}
FATAL = {31, 53, 90, 35, 49}


def test_the_actions_are_those_of_kafkas_producer() -> None:
    """Codes of Kafka's class `Errors`."""
    for code in RETRY_AND_REFRESH:
        assert Code(code).action == Action.RETRY | Action.REFRESH_METADATA, code
    for code in RETRY:
        assert Code(code).action == Action.RETRY, code
    for code in FAIL:
        assert Code(code).action == Action.NONE, code
    for code in FATAL:
        assert Code(code).action == Action.FATAL, code
    assert Code.MESSAGE_TOO_LARGE.action == Action.SPLIT
    assert Code.DUPLICATE_SEQUENCE_NUMBER.action == Action.SUCCESS


@pytest.mark.parametrize("number", [12345, -2, 130, 32767, -32768])
def test_an_unknown_code_is_named_by_its_number_and_not_retried(number: int) -> None:
    code = Code(number)
    assert (code, code.value, code.name) == (number, number, f"UNKNOWN_ERROR_CODE_{number}")
    assert (code.action, code.advice) == (Action.NONE, "see the broker's log")
    assert pickle.loads(pickle.dumps(code)) == code
    assert number not in list(Code), "asking for it does not enter it"


def test_what_is_no_number_is_no_code() -> None:
    with pytest.raises(ValueError, match="not a valid Code"):
        Code("3")  # type: ignore[arg-type]  # the mistake under test


# --- no other module has numbers of its own ---------------------------------------------------------------------------


NAMES = set(Code.__members__) - {"NONE"}
"""NONE is also a codec, and an action."""


def is_number(node: ast.expr) -> bool:
    """A literal number, or a tuple, list or set with one in it."""
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return any(map(is_number, node.elts))
    if isinstance(node, ast.UnaryOp):
        return is_number(node.operand)
    return isinstance(node, ast.Constant) and type(node.value) is int


def is_code(node: ast.expr) -> bool:
    """Something that is named for an error code: `error_code`, `answer.error_code`, `error.code`."""
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return name == "code" or name.endswith("error_code")


def bare_numbers(tree: ast.AST) -> Iterator[int]:
    """The lines where an error code is compared with, or given as, a literal number, or a literal has a code's name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            found = any(map(is_code, sides)) and any(map(is_number, sides))
        elif isinstance(node, ast.keyword):
            found = node.arg in ("code", "error_code") and is_number(node.value)
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None and is_number(node.value):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found = any(isinstance(target, ast.Name) and target.id.strip("_") in NAMES for target in targets)
        else:
            continue
        if found:
            yield node.lineno if isinstance(node, ast.stmt | ast.expr) else node.value.lineno


@pytest.mark.slow
@pytest.mark.parametrize("paths", by_folder(CHECKED), ids=name_of_folder)
def test_no_error_code_is_a_bare_number(paths: list[Path]) -> None:
    found = [f"{name_of(path)}:{line}" for path in paths for line in bare_numbers(parsed(path))]
    assert not found, "write Code.NAME instead"


@pytest.mark.parametrize(
    "source",
    [
        "answer.error_code == 3", "0 != code", "error_code in (6, 74)", "self.wait.code == -1", "fail(code=3)",
        "NETWORK_EXCEPTION = 13", "_UNSUPPORTED_VERSION: Final = 35",
    ],
)  # fmt: skip
def test_a_bare_number_is_seen(source: str) -> None:
    assert list(bare_numbers(ast.parse(source))) == [1]


@pytest.mark.parametrize(
    "source", ["codec == 3", "done.returncode == 0", "code == Code.NONE", "not code", "TIMES = 13"]
)
def test_other_numbers_are_not(source: str) -> None:
    assert not list(bare_numbers(ast.parse(source)))
