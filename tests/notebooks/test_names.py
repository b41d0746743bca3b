"""The names that notebooks use exist. The notebooks run nightly; here mypy reads their code in every run."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from notebooks.run import stored
from tests.notebooks.test_notebooks import NOTEBOOKS, ROOT

MYPY = (
    *(
        sys.executable,
        "-m",
        "mypy",
        "--config-file=",
        "--cache-dir",
        ".mypy_cache/notebooks",
        "--follow-imports",
        "silent",
    ),
    *("--check-untyped-defs", "--allow-redefinition", "--local-partial-types"),
)
WRONG_NAME = re.compile(r"\[(?:attr-defined|call-arg|import-not-found|name-defined)\]$")
"""Errors of mypy that are ignored: notebooks are written without types."""
SECONDS = 300


def test_notebooks_use_names_that_exist(tmp_path: Path) -> None:
    code = [tmp_path / f"{path.stem}_notebook.py" for path in NOTEBOOKS]
    for path, copy in zip(NOTEBOOKS, code, strict=True):
        copy.write_text("\n\n".join(cell.source for cell in stored(path).cells if cell.cell_type == "code"))
    done = subprocess.run([*MYPY, *code], cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.stdout.splitlines()[-1].endswith(f"(checked {len(code)} source files)"), done.stdout + done.stderr
    assert [line for line in done.stdout.splitlines() if WRONG_NAME.search(line)] == []
