"""Every sleep of the tests outside the one helper says on its line why no condition can be waited for."""

from __future__ import annotations

import ast
import io
import tokenize
from pathlib import Path

TESTS = Path(__file__).parents[1]
HELPER = TESTS / "support" / "waiting.py"


def sleeps(text: str) -> list[int]:
    """The lines of `time.sleep` and `asyncio.sleep` that have no comment."""
    calls = [
        node.func
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "sleep"
    ]
    lines = [call.lineno for call in calls if isinstance(call.value, ast.Name) and call.value.id in ("time", "asyncio")]
    tokens = tokenize.generate_tokens(io.StringIO(text).readline) if lines else ()
    commented = {token.start[0] for token in tokens if token.type == tokenize.COMMENT}
    return sorted(set(lines) - commented)


def test_every_sleep_has_its_reason() -> None:
    files = {path: path.read_text() for path in TESTS.rglob("*.py") if path != HELPER}
    without = {
        f"{path.relative_to(TESTS)}:{line}"
        for path, text in files.items()
        if ".sleep(" in text
        for line in sleeps(text)
    }
    assert without == set(), "use tests.support.waiting.wait_until, or write the reason on the line"


def test_a_sleep_without_its_reason_is_found() -> None:
    assert sleeps("import time\ntime.sleep(1)\ntime.sleep(2)  # the pace\nself.sleep(3)\n") == [2]
