"""Make the zip for `spark-submit --py-files`: what a driver and its executors import, without docstrings and comments.

Every line keeps its number, so that a traceback of an executor names the line of the sources. Equal sources give equal bytes.
"""

import ast
import io
import sys
import time
import tokenize
import zipfile
from collections.abc import Iterator
from pathlib import Path

from build_release import epoch

ROOT = Path(__file__).resolve().parents[1]
NOT_FOR_SPARK = {"broker", "cli", "legacy_formats", "__main__.py"}
"""Packages of `spark_producer` that neither a driver nor an executor imports: an import contract in pyproject.toml says so."""


def docstrings(module: ast.Module) -> Iterator[ast.Expr]:
    """Each statement that is nothing but a string."""
    for node in ast.walk(module):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node


def code_of(source: str) -> str:
    """Return `source` without comments, with `""` for each docstring, and as many lines as before."""
    texts = source.removesuffix("\n").split("\n")
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            texts[row - 1] = texts[row - 1][:column].rstrip()
    lines = [text.encode() for text in texts]
    for node in docstrings(ast.parse(source)):
        first, last = node.lineno - 1, node.end_lineno or node.lineno
        lines[first:last] = [lines[first][: node.col_offset] + b'""', *[b""] * (last - first - 1)]
    return b"\n".join([*lines, b""]).decode()


def main(path: Path) -> None:
    """Write the zip to `path`. Its files have the day of the release, and no mode of a machine."""
    path.parent.mkdir(parents=True, exist_ok=True)
    day = time.gmtime(epoch())[:6]
    with zipfile.ZipFile(path, "w") as archive:
        for file in sorted((ROOT / "spark_producer").rglob("*.py")):
            name = file.relative_to(ROOT)
            if name.parts[1] not in NOT_FOR_SPARK:
                entry = zipfile.ZipInfo(name.as_posix(), day)
                entry.external_attr, entry.create_system = 0o644 << 16, 3
                code = code_of(file.read_text(encoding="utf-8"))
                archive.writestr(entry, code, zipfile.ZIP_DEFLATED, compresslevel=9)
    print(path)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
