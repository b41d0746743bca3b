"""The words that no one writes here: CONTRIBUTING.md, rule 3, as far as a machine can hold it.

Docstrings, comments, messages and names of the whole package, and the names in tests, benchmarks, jobs and `docs/`.
"""

from __future__ import annotations

import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "spark_producer"

PARTS = sorted(path.name for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists())

FORBIDDEN_TEXT = re.compile(
    r"\banew\b|\bwhoever\b|\b(some|no)body\b|\btold\b|\btells?\b|\btelling\b|\bin vain\b|\bst(and|ood|ands)s? still\b|\bdeeds?\b"
    r"|\bby itself\b|\bcarr(y|ied|ies) (it )?out\b|\bso (many|often)\b|\bof one's own\b|\b(is|are) none of\b|\bas ever\b"
    r"|\b(the|last|newest|no|a|its|their) words?\b(?! (size|of (32|64)))"
    r"|\bbehind\b(?! (a|an|the|one) (\w+ )?(proxy|load balancer|listener))"
    r"|\bmade (new|anew)\b|\bwhat becomes of\b|\bbecame of\b|\bpatience\b|\bglued\b",
    re.IGNORECASE,
)
FORBIDDEN_NAME = re.compile(
    r"^(told|tells?|telling|anew|behind|patience|whoever|(some|no)body|laps?|rooms?|words?|glued|hung|spoken|heard|spoil)$"
)
"""Parts of names, between underscores or capitals."""
ALLOWED = {"MAX_WORD", "HUNG", "Hung", "hung", "GLUED"}
"""`HUNG` is a final status of control records, which is on disks; `GLUED` is a kind of
`ExactlyOnceError`."""


def sources(part: str) -> list[Path]:
    path = PACKAGE / part
    return [path] if path.is_file() else sorted(path.rglob("*.py"))


def parts_of(name: str) -> list[str]:
    return [part.lower() for part in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)]


def findings(path: Path) -> Iterator[str]:
    """Each use of a forbidden word in `path`, as `file:line: word: line of text`."""
    where = path.relative_to(ROOT)
    for token in tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline):
        line = token.start[0]
        if token.type == tokenize.NAME and token.string not in ALLOWED:
            if any(FORBIDDEN_NAME.match(part) for part in parts_of(token.string)):
                yield f"{where}:{line}: name {token.string}"
        elif token.type in (tokenize.STRING, tokenize.COMMENT, getattr(tokenize, "FSTRING_MIDDLE", -1)):
            for found in FORBIDDEN_TEXT.finditer(token.string):
                at = line + token.string.count("\n", 0, found.start())
                text = token.string[max(0, found.start() - 50) : found.end() + 50].replace("\n", " ")
                yield f"{where}:{at}: '{found.group()}' in: {text}"


def test_the_lint_finds_what_it_forbids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    path = tmp_path / "example.py"
    path.write_text('def tell_once(first_behind: int) -> None:\n    """Log in anew."""\n', encoding="utf-8")
    assert [found.split(": ", 1)[1].split(" in:")[0] for found in findings(path)] == [
        "name tell_once",
        "name first_behind",
        "'anew'",
    ]


@pytest.mark.parametrize("folder", ["benchmarks", "docs", "jobs", "tests"])
def test_no_forbidden_term_in_a_name_outside_of_the_package(folder: str) -> None:
    """`word` and `room` are not terms of records and packages in tests and pictures: a text has words, and a queue has room."""
    names = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        if path != Path(__file__)
        for name in {path.stem, *re.findall(r"\b[A-Za-z_]\w*", code(path))} - ALLOWED
        if any(FORBIDDEN_NAME.match(part) for part in set(parts_of(name)) - {"word", "words", "room"})
    ]
    assert names == []


PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]


@pytest.mark.parametrize("path", [path for path in PAGES if path.name != "CHANGELOG.md"], ids=lambda path: path.name)
def test_no_forbidden_term_in_a_page(path: Path) -> None:
    """`behind` may be a reader's lag, and `a word` four bytes; GLUED is the kind of an error."""
    found = [each.group() for each in FORBIDDEN_TEXT.finditer(path.read_text(encoding="utf-8"))]
    assert set(found) - ALLOWED - {"behind", "a word", "their words"} == set()


def code(path: Path) -> str:
    """The names of a file: what is neither a comment nor a text."""
    tokens = tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline)
    return " ".join(token.string for token in tokens if token.type == tokenize.NAME)


@pytest.mark.parametrize("part", PARTS)
def test_no_forbidden_term(part: str) -> None:
    assert [found for path in sources(part) for found in findings(path)] == []


if __name__ == "__main__":
    for part in sys.argv[1:] or ["."]:
        for path in sources(part):
            for found in findings(path):
                print(found)
