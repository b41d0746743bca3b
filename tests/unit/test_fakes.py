"""Fakes depend on no tests: none imports a test, or a helper of one folder's tests."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

FAKES = sorted((Path(__file__).parents[1] / "fakes").glob("*.py"))


def test_there_are_fakes_and_no_tests_among_them() -> None:
    assert len(FAKES) > 8
    assert [path.name for path in FAKES if path.name.startswith("test_")] == []


@pytest.mark.parametrize("path", FAKES, ids=lambda path: path.name)
def test_a_fake_imports_no_folder_of_tests(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        for module in modules:
            assert not module.startswith("tests.") or module.startswith(("tests.fakes.", "tests.support.")), module
