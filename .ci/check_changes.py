"""Check changes/: each file is `name.kind.md` with a kind of [tool.towncrier], and one short paragraph. `make lint` runs it.

It needs nothing but Python, so that it runs wherever lint does.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NAME = re.compile(r"(?P<name>\+?[a-z0-9-]+)\.(?P<kind>[a-z-]+)\.md")
MAX_LINES, MAX_WIDTH = 4, 118
"""A release is to fit on a screen. The list of CHANGELOG.md adds two columns."""
NOT_CHANGES = {"template.md.jinja", ".gitignore"}


def kinds() -> list[str]:
    """Return the kinds of changes, in the order of the sections."""
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["towncrier"]
    return [kind["directory"] for kind in config["type"]]


def problems(name: str, text: str, known: list[str]) -> list[str]:
    """Return what is wrong with a file."""
    found = []
    match = NAME.fullmatch(name)
    if match is None or match["kind"] not in known:
        found.append(f"its name is not NAME.KIND.md, with a kind of {', '.join(known)}")
    lines = text.rstrip("\n").split("\n")
    if len(lines) > MAX_LINES or max(map(len, lines)) > MAX_WIDTH:
        found.append(f"it has more than {MAX_LINES} lines of {MAX_WIDTH} characters")
    if not all(line.strip() for line in lines):
        found.append("it has an empty line: it is one paragraph")
    if any(line.startswith(("#", "*", "- ")) and not line.startswith("**") for line in lines):
        found.append("it begins with a heading or a list, which CHANGELOG.md adds")
    if not text.endswith((".\n", ").\n")):
        found.append("it does not end with a full stop and a newline")
    return found


def main() -> int:
    """Name every problem; return 1 if there is one."""
    known, bad = kinds(), 0
    for path in sorted((ROOT / "changes").iterdir()):
        if path.name not in NOT_CHANGES:
            for problem in problems(path.name, path.read_text(encoding="utf-8"), known):
                print(f"changes/{path.name}: {problem}")
                bad += 1
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
