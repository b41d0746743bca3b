"""Terms that are forbidden by rule 3 of CONTRIBUTING.md: in names, docstrings, comments and texts of all code, and in pages."""

from __future__ import annotations

import io
import re
import sys
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "spark_producer"

PARTS = sorted(path.name for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists())

FORBIDDEN_TEXT = re.compile(
    (
        r"\banew\b|\bwhoever\b|\b(some|no)body\b|\btold\b|\btells?\b|\btelling\b|\bin vain\b|\bst(and|ood|ands)s? still\b"
        r"|\bdeeds?\b|\bby itself\b|\bcarr(y|ied|ies) (it )?out\b|\bso (many|often)\b|\bof one's own\b"
        r"|\b(is|are) none of\b|\bas ever\b|\b(the|last|newest|no|a|its|their) words?\b(?! (size|of (32|64)))"
        r"|\bbehind\b(?! (a|an|the|one) (\w+ )?(proxy|load balancer|listener))"
        r"|\bmade (new|anew)\b|\bwhat becomes of\b|\bbecame of\b|\bpatience\b|\bglued\b"
    ).replace(" ", r"\s+"),
    re.IGNORECASE,
)
FORBIDDEN_NAME = re.compile(
    r"^(told|tells?|telling|anew|behind|patience|whoever|(some|no)body|laps?|rooms?|words?|glued|hung|spoken|heard|spoil)$"
)
"""Parts of names, between underscores or capitals."""
ALLOWED = {"MAX_WORD", "HUNG", "Hung", "hung", "GLUED"}
"""`HUNG` is a final status of control records, which is on disks; `GLUED` is a kind of
`ExactlyOnceError`."""


def files(part: str) -> list[Path]:
    """Return the Python files of a folder of the repository, or of a part of the package, but not this one."""
    path = PACKAGE / part if part in PARTS else ROOT / part
    found = [path] if path.is_file() else sorted(path.rglob("*.py"))
    return [each for each in found if each != Path(__file__)]


@cache
def is_forbidden(name: str) -> bool:
    """Return whether a part of a name, between underscores or capitals, is a forbidden term."""
    parts = re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)
    return name not in ALLOWED and any(FORBIDDEN_NAME.match(part.lower()) for part in parts)


def findings(path: Path) -> list[str]:
    """Return each use of a forbidden term in a file, as `file:line: term in: text`."""
    text = path.read_text(encoding="utf-8")
    if FORBIDDEN_TEXT.search(text) is None and not any(map(is_forbidden, set(re.findall(r"[A-Za-z_]\w*", text)))):
        return []  # most files: tokens take several times as long
    return list(findings_of_tokens(text, str(path.relative_to(ROOT))))


def findings_of_tokens(text: str, name: str) -> Iterator[str]:
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        line = token.start[0]
        if token.type == tokenize.NAME and is_forbidden(token.string):
            yield f"{name}:{line}: name {token.string}"
        elif token.type in (tokenize.STRING, tokenize.COMMENT, getattr(tokenize, "FSTRING_MIDDLE", -1)):
            for found in FORBIDDEN_TEXT.finditer(token.string):
                at = line + token.string.count("\n", 0, found.start())
                around = token.string[max(0, found.start() - 50) : found.end() + 50].replace("\n", " ")
                yield f"{name}:{at}: {found.group()!r} in: {around}"


def test_the_lint_finds_what_it_forbids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    path = tmp_path / "example.py"
    path.write_text(
        'def tell_once(first_behind: int) -> str:  # in vain\n    """Log in anew, so\n    many times."""\n    return "hung"\n',
        encoding="utf-8",
    )
    assert [found.partition(":")[2].split(" in:")[0] for found in findings(path)] == [
        "1: name tell_once",
        "1: name first_behind",
        "1: 'in vain'",
        "2: 'anew'",
        r"2: 'so\n    many'",
    ]


@pytest.mark.parametrize("part", [*PARTS, "benchmarks", "docs", "jobs", "tests"])
def test_no_forbidden_term(part: str) -> None:
    assert [found for path in files(part) for found in findings(path)] == []


PAGES = [path.relative_to(ROOT) for folder in (".", "docs", "tests") for path in sorted((ROOT / folder).glob("*.md"))]


@pytest.mark.parametrize("path", [path for path in PAGES if path.name != "CHANGELOG.md"], ids=str)
def test_no_forbidden_term_in_a_page(path: Path) -> None:
    """`behind` may be a reader's lag, and `a word` four bytes; GLUED is the kind of an error."""
    found = [each.group() for each in FORBIDDEN_TEXT.finditer((ROOT / path).read_text(encoding="utf-8"))]
    assert set(found) - ALLOWED - {"behind", "a word", "their words"} == set()


if __name__ == "__main__":
    for part in sys.argv[1:] or PARTS:
        for path in files(part):
            for found in findings(path):
                print(found)
