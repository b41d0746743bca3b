"""The doubles stand for themselves: no stage imports a test, or a helper of one folder's tests."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

STAGES = sorted((Path(__file__).parents[1] / "stages").glob("*.py"))


def test_there_are_stages_and_no_tests_among_them() -> None:
    assert len(STAGES) > 8
    assert [path.name for path in STAGES if path.name.startswith("test_")] == []


@pytest.mark.parametrize("path", STAGES, ids=lambda path: path.name)
def test_a_stage_imports_no_folder_of_tests(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        for module in modules:
            assert not module.startswith("tests.") or module.startswith(("tests.stages.", "tests.support.")), module
