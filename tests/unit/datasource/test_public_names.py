"""The names that docs/stability.md promises are still there, as they were."""

from __future__ import annotations

from tests.support.public_names import LIST, public_names

WRITE = "python -m tests.support.public_names"


def test_no_public_name_is_gone_or_has_changed() -> None:
    """What is retired stays as a deprecated name at least until the next major version: docs/stability.md."""
    now = set(public_names())
    gone = [line for line in LIST.read_text(encoding="utf-8").splitlines() if line not in now]
    assert not gone, f"docs/stability.md promises these; keep them, beside new ones: {gone}"


def test_every_new_public_name_is_in_the_list() -> None:
    known = set(LIST.read_text(encoding="utf-8").splitlines())
    new = [line for line in public_names() if line not in known]
    assert not new, f"promised from now on, if it is meant to be (`{WRITE}`): {new}"
