"""The tiered engine on a real disk, killed again and again while it appends and flushes."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from spark_producer.broker.settings import BrokerSettings, TopicSettings
from spark_producer.record.batch_v2 import BatchHeader, batches, check_crc, read_header
from tests.unit.broker.storage.tiered.killed_process import PARTITIONS, TIERS, batch_at
from tests.unit.test_layout import ROOT

RUNS = 4
LINES = 150
"""A process reports some rounds, of one batch for each partition, before it is killed. Meanwhile the cache is flushed."""


@pytest.mark.covers("W7")
@pytest.mark.slow
@pytest.mark.parametrize("kind", TIERS)
def test_a_killed_process_leaves_everything_that_it_has_acknowledged(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    acknowledged = [0] * PARTITIONS
    for run in range(RUNS):
        acknowledged = append_and_kill(tmp_path, kind, LINES + 13 * run)
        check(tmp_path, kind, acknowledged)
    assert min(acknowledged) > RUNS * LINES
    flushed = {path.parent for path in tmp_path.rglob("????????.log")}
    assert len(flushed) == {"two": 2, "three": 3}.get(kind, 1), "it was flushed, in each directory"
    assert "rebuilt" not in caplog.text, "the index had everything"


def append_and_kill(directory: Path, kind: str, lines: int) -> list[int]:
    """Have a process append until it has printed `lines` lines; return the last one."""
    command = [sys.executable, "-m", "tests.unit.broker.storage.tiered.killed_process", str(directory), kind]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        acknowledged = [process.stdout.readline() for _ in range(lines)]
        process.kill()
    assert acknowledged[-1], "the process has ended"
    return [int(offset) for offset in acknowledged[-1].split()]


def remember(seen: list[BatchHeader], header: BatchHeader, _batch: bytes) -> None:
    seen.append(header)


def check(directory: Path, kind: str, acknowledged: list[int]) -> None:
    storage = TIERS[kind](directory, BrokerSettings(sync_on_close=False))
    storage.recover({"t": PARTITIONS})
    for index in range(PARTITIONS):
        seen: list[BatchHeader] = []
        log = storage.open("t", index, TopicSettings(), partial(remember, seen))
        assert log.high_watermark >= acknowledged[index]
        offset = 0
        while data := log.read(offset, 50_000):
            for header, batch in batches(data):
                check_crc(header, batch)
                assert (header.base_offset, seen.pop(0).base_offset) == (offset, offset)
                assert batch[16:] == batch_at(offset)[16:], f"partition {index}, offset {offset}"
                offset += read_header(batch).records_count
        assert offset == log.high_watermark
        log.close()
    storage.close()
