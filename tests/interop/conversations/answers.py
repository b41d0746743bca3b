"""The answers of real Kafka as tables that people can read, a file for each version; tests read them too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.interop.conversations.scene import Line, Scene, TxnVersion

FOLDER = Path(__file__).parent / "answers"
_HEAD = """\
# What Kafka {version} answers

Written by `python -m tests.interop.conversations.record`, which played every scene to one broker of Kafka {version}.
Producer ids are numbered in the order in which they appear (P1, P2, ...). Not recorded: times, throttling and the texts
of errors. `EndTxn` and others are repeated while the answer is CONCURRENT_TRANSACTIONS (51), unless the step
is there to show it.
"""
_COLUMNS = "| | request | answer |\n|---|---|---|\n"


def title(scene: Scene, txn_version: TxnVersion) -> str:
    """The name of a scene with a transaction version."""
    return f"{scene.name}, {txn_version.name}"


def file_of(version: str) -> Path:
    """Return the file of the answers of a Kafka."""
    return FOLDER / f"kafka-{version}.md"


def page(version: str, played: Iterable[tuple[Scene, TxnVersion, list[Line]]]) -> str:
    """The page with all answers of one Kafka."""
    parts = [_HEAD.format(version=version)]
    for scene, txn_version, lines in played:
        rows = "".join(f"| {line.connection} | `{line.request}` | {line.answer} |\n" for line in lines)
        parts.append(f"\n## {title(scene, txn_version)}\n\n{scene.shows}.\n\n{_COLUMNS}{rows}")
    return "".join(parts)


def read(version: str) -> Mapping[str, list[Line]]:
    """Title of a scene → the lines that a Kafka gave."""
    found: dict[str, list[Line]] = {}
    for text in file_of(version).read_text(encoding="utf-8").splitlines():
        if text.startswith("## "):
            lines = found[text.removeprefix("## ")] = []
        elif text.startswith("| ") and "`" in text:
            connection, request, answer = text.strip("| ").split(" | ", 2)
            lines.append(Line(connection, request.strip("`"), answer))
    return found
