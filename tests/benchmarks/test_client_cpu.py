"""The split of the client's CPU runs, and its parts make the whole."""

from __future__ import annotations

from pathlib import Path

from benchmarks import client_cpu
from benchmarks.client_cpu import Whole


def test_the_page_has_every_stage_and_a_whole(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    client_cpu.main(["--rounds", "2", "--calls", "2", "--batches", "2", "--out", str(page)])
    text = page.read_text()
    for name in (
        "read Arrow IPC",
        "hash keys (murmur2)",
        "encode records",
        "CRC-32C",
        "send to the socket",
        "the rest",
    ):
        assert text.count(f"| {name} |") == 1
    assert "| 100% |" in text


def test_the_rest_is_what_no_stage_explains() -> None:
    text = client_cpu.page({"one": 20.0, "another": 30.0}, Whole(task=60.0, io=40.0, faults=1234.0), rounds=3)
    assert "| the rest | 50 | 50% |" in text
    assert "| the whole: task 60, I/O thread 40 | 100 | 100% |" in text
    assert "1,234 page faults" in text
