"""The parts of docs/platforms.md that the runs write."""

from __future__ import annotations


def with_part(page: str, begin: str, end: str, text: str) -> str:
    """The page with this text between two marks.

    Raises:
        ValueError: the page has no such marks.
    """
    before, found, rest = page.partition(begin)
    _, found_end, after = rest.partition(end)
    if not found or not found_end:
        raise ValueError(f"there is no place in the page, between {begin} and {end}")
    return f"{before}{begin}\n\n{text}\n\n{end}{after}"
