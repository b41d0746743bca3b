"""The keys of JSON objects that docs/command_line.md names for each command, and those that an object has."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parents[2] / "docs" / "command_line.md"
ROW = re.compile(r"^\| `([^`]+)` \| [^|]* \| ([^|]*) \|$", re.MULTILINE)


def documented_commands() -> dict[str, set[str]]:
    """The commands of the page's table of JSON, and the paths of their keys: `a`, `a.b`, `a[].b` for objects in a list."""
    table = PAGE.read_text(encoding="utf-8").partition("| command | objects | keys |")[2].partition("\n\n")[0]
    return {
        command: {path for code in re.findall(r"`([^`]+)`", keys) for path in _expanded(code)}
        for command, keys in ROW.findall(table)
    }


def _expanded(code: str) -> Iterator[str]:
    before, brace, names = code.partition("{")
    yield from (before + name for name in names.removesuffix("}").split(",")) if brace else (code,)


def paths(found: object, known: Collection[str], at: str = "") -> Iterator[str]:
    """The paths of all keys of a JSON value, not below a path that is `known`, nor of objects that are not there."""
    if at in known:
        yield at
    elif isinstance(found, dict):
        for key, value in found.items():
            yield from paths(value, known, f"{at}.{key}".lstrip("."))
    elif isinstance(found, list) and found and isinstance(found[0], dict):
        for each in found:
            yield from paths(each, known, f"{at}[]")
    elif found not in (None, []) or not any(path.startswith((f"{at}.", f"{at}[]")) for path in known):
        yield at


def objects(command: str, output: str) -> list[Any]:
    """The JSON objects that a command printed, one a line, whose keys are together all those of the page."""
    found = [json.loads(line) for line in output.splitlines()]
    check_keys(command, found)
    return found


def check_keys(command: str, found: Iterable[object]) -> None:
    """The objects of a command have together all the keys of the page, and no others."""
    known = documented_commands()[command]
    assert {path for each in found for path in paths(each, known)} == known, command
