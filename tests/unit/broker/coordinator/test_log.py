"""The coordinator's log: what a crash, a full disk and damage leave of it."""

import errno
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from spark_producer.broker.coordinator.entries import (
    GROUP_WEIGHT,
    CoordinatorState,
    Entry,
    OffsetsCommitted,
    PartitionsAdded,
    PendingOffsets,
    PendingOffsetsEnded,
    TransactionExpired,
    TransactionSet,
    from_text,
    merge_added,
    to_text,
)
from spark_producer.broker.coordinator.log import MIN_REWRITE_BYTES, NAME, CoordinatorLog
from spark_producer.broker.coordinator.offsets import CommittedOffset
from spark_producer.broker.coordinator.transactions import Transaction, TransactionState
from spark_producer.common.cluster import TopicPartition
from spark_producer.errors import BrokerError, CorruptRecord
from tests.fakes.disk import Disk

ONGOING = Transaction(
    7,
    60_000,
    3,
    2,
    6,
    8,
    TransactionState.ONGOING,
    frozenset({TopicPartition("t", 0), TopicPartition("ü", 12)}),
    frozenset({"g"}),
    500,
    600,
)
OFFSETS = {TopicPartition("t", 0): CommittedOffset(5, -1, None), TopicPartition("ü", 1): CommittedOffset(6, 2, "note")}
ENTRIES: list[Entry] = [
    TransactionSet("a\n", ONGOING),
    TransactionSet("b", Transaction(8, 1, 0)),
    PartitionsAdded("a\n", (TopicPartition("t", 1),), ("h",), 700),
    PendingOffsets(7, "g", OFFSETS),
    OffsetsCommitted("h", OFFSETS),
    PendingOffsetsEnded(7, ("g",), True),
    TransactionExpired("b"),
]


def opened(data_dir: Path, *, sync: bool = False) -> tuple[CoordinatorLog, Sequence[Entry]]:
    log = CoordinatorLog(data_dir, sync=sync)
    return log, log.read()


def written(data_dir: Path, *entries: Entry) -> bytes:
    log, _ = opened(data_dir)
    for entry in entries:
        log.append([entry])
    log.close()
    return (data_dir / NAME).read_bytes()


def test_what_is_appended_is_read_again(tmp_path: Path) -> None:
    written(tmp_path, *ENTRIES[:3])
    written(tmp_path, *ENTRIES[3:])
    log, entries = opened(tmp_path)
    log.close()
    assert entries == ENTRIES
    assert (tmp_path / NAME).stat().st_mode & 0o777 == 0o600


def test_a_torn_end_is_cut_off(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    whole = written(tmp_path, *ENTRIES)
    ends = [position + 1 for position, byte in enumerate(whole) if byte == ord("\n")]
    around_lines = {size for end in (0, *ends) for size in range(end - 2, end + 3)}
    for size in sorted(around_lines.union(range(0, len(whole), 29)).intersection(range(len(whole)))):
        (tmp_path / NAME).write_bytes(whole[:size])
        log, entries = opened(tmp_path)
        lines = sum(end <= size for end in ends)
        assert entries == ENTRIES[: max(lines - 1, 0)]
        log.append([ENTRIES[-1]])
        log.close()
        assert opened(tmp_path)[1] == [*ENTRIES[: max(lines - 1, 0)], ENTRIES[-1]]
    assert "a crash left an incomplete write" in caplog.text


def test_zeros_at_the_end_are_torn_too(tmp_path: Path) -> None:
    whole = written(tmp_path, *ENTRIES)
    (tmp_path / NAME).write_bytes(whole + bytes(100))
    assert opened(tmp_path)[1] == ENTRIES
    assert (tmp_path / NAME).read_bytes() == whole


@pytest.mark.parametrize("line", range(len(ENTRIES)))
def test_damage_before_a_whole_entry_is_no_torn_end(tmp_path: Path, line: int) -> None:
    lines = written(tmp_path, *ENTRIES).splitlines(keepends=True)
    lines[line] = lines[line][:-3] + b"x" + lines[line][-2:]
    (tmp_path / NAME).write_bytes(b"".join(lines))
    with pytest.raises(CorruptRecord, match=f"line {line + 1} is damaged.*--skip-damage.*are forgotten"):
        opened(tmp_path)
    assert (tmp_path / NAME).read_bytes() == b"".join(lines)


@pytest.mark.parametrize(
    "text",
    [
        '["begin",2]',
        "{}",
        "[]",
        "[1]",
        '["put","a",{}]',
        '["put","a"]',
        '["forgotten",1]',
        '["committed","g",[["t",0,1]]]',
        '["added","a",{"t":[true]},[],1]',
        '["added","a",{"t":0},[],1]',
        '["ended",1,[2],true]',
        to_text(ENTRIES[0]).replace("Ongoing", "Gone"),
        to_text(ENTRIES[0]).replace("60000", '"x"'),
        to_text(ENTRIES[0]).replace('"groups":["g"]', '"groups":0'),
        "nonsense",
    ],
)
def test_what_no_broker_wrote_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        from_text(text)


def test_a_log_without_its_beginning_is_refused(tmp_path: Path) -> None:
    lines = written(tmp_path, *ENTRIES).splitlines(keepends=True)
    (tmp_path / NAME).write_bytes(b"".join(lines[1:]))
    with pytest.raises(CorruptRecord, match="first entry is missing"):
        opened(tmp_path)


def test_a_full_disk_leaves_no_half_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = written(tmp_path, *ENTRIES)
    log, _ = opened(tmp_path)
    write = os.write

    def half(file: int, data: memoryview) -> int:
        if len(data) > 20:
            return write(file, data[: len(data) // 2])
        raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", half)
        with pytest.raises(BrokerError, match="full"):
            log.append([ENTRIES[0]])
    assert (tmp_path / NAME).read_bytes() == before
    log.append([ENTRIES[1]])
    log.close()
    assert opened(tmp_path)[1] == [*ENTRIES, ENTRIES[1]]


@pytest.mark.parametrize("sync", [True, False])
def test_entries_are_on_the_disk_as_the_settings_say(tmp_path: Path, disk: Disk, sync: bool) -> None:
    log, _ = opened(tmp_path, sync=sync)
    log.append(ENTRIES[:2])
    log.append([ENTRIES[2]])
    assert disk.synced.count((tmp_path / NAME).stat().st_ino) == (3 if sync else 1), "its beginning in any case"
    log.close()


def test_after_a_failed_sync_nothing_is_taken_any_more(tmp_path: Path, disk: Disk) -> None:
    log, _ = opened(tmp_path, sync=True)
    disk.refuse("fdatasync", errno.EIO)
    with pytest.raises(BrokerError, match="Input/output"):
        log.append(ENTRIES[:1])
    disk.accept_syncs()
    with pytest.raises(BrokerError, match="Restart the broker"):
        log.append(ENTRIES[:1])
    log.close()


def test_a_rewritten_log_has_the_same_state(tmp_path: Path) -> None:
    ledger = CoordinatorState()
    for entry in ENTRIES:
        ledger.apply(entry)
    pending = PendingOffsets(9, "k", OFFSETS)
    ledger.apply(pending)
    size = len(written(tmp_path, *ENTRIES, pending))
    log, _ = opened(tmp_path)
    log.rewrite(ledger.entries())
    log.append([TransactionExpired("c")])
    log.close()
    assert (tmp_path / NAME).stat().st_size < size

    again = CoordinatorState()
    for entry in opened(tmp_path)[1]:
        again.apply(entry)
    assert list(again.entries()) == list(ledger.entries())
    assert again.open_partitions == ledger.open_partitions == 3 + 2 * GROUP_WEIGHT
    assert again.offsets.weight == ledger.offsets.weight == 3 * len(OFFSETS)
    assert again.offsets.is_unstable("k", TopicPartition("t", 0))


def test_a_large_log_wants_to_be_rewritten(tmp_path: Path) -> None:
    log, _ = opened(tmp_path)
    large = OffsetsCommitted("g", {TopicPartition("t", 0): CommittedOffset(1, 1, "x" * (MIN_REWRITE_BYTES // 4))})
    log.append([large] * 3)
    assert not log.wants_rewrite
    log.append([large])
    assert log.wants_rewrite
    log.rewrite([large] * 2)
    log.append([large] * 5)
    assert not log.wants_rewrite, "less than four times what it is when it is rewritten"
    log.append([large] * 2)
    assert log.wants_rewrite
    log.close()


def test_a_rewrite_that_the_disk_refuses_loses_nothing(tmp_path: Path, disk: Disk) -> None:
    written(tmp_path, *ENTRIES)
    log, _ = opened(tmp_path)
    disk.refuse("replace", errno.EIO)
    with pytest.raises(BrokerError, match="Input/output"):
        log.rewrite([])
    disk.restore()
    log.append([ENTRIES[0]])
    log.close()
    assert opened(tmp_path)[1] == [*ENTRIES, ENTRIES[0]]


def test_a_refused_rewrite_is_not_tried_again_with_every_entry(tmp_path: Path, disk: Disk) -> None:
    """Each try makes the whole text, which takes up to a second."""
    log, _ = opened(tmp_path)
    log.append([OffsetsCommitted("g", {TopicPartition("t", 0): CommittedOffset(1, 1, "x" * MIN_REWRITE_BYTES)})])
    assert log.wants_rewrite
    disk.refuse("replace", errno.ENOSPC)
    with pytest.raises(BrokerError, match="No space"):
        log.rewrite([])
    disk.restore()
    log.append([ENTRIES[0]])
    assert not log.wants_rewrite
    log.close()


def test_an_addition_to_nothing_is_a_contradiction() -> None:
    with pytest.raises(ValueError, match="no transaction to add to"):
        CoordinatorState().apply(PartitionsAdded("a", (TopicPartition("t", 0),), (), 1))
    first, _ = merge_added([PartitionsAdded("a", (TopicPartition("t", 0),), (), 1), TransactionSet("a", ONGOING)])
    with pytest.raises(ValueError, match="no transaction to add to"):
        CoordinatorState().apply(first)


def test_what_was_added_step_by_step_is_read_back_at_once() -> None:
    steps: list[Entry] = [TransactionSet("a", ONGOING), TransactionSet("b", ONGOING)]
    for number in range(50):
        steps.append(PartitionsAdded("a", (TopicPartition("t", number),), (), number))
        steps.append(PartitionsAdded("b", (), (f"g{number}",), number))
    steps += [
        PendingOffsets(7, "g", OFFSETS),
        TransactionSet("b", ONGOING),
        PartitionsAdded("b", (TopicPartition("u", 0),), (), 90),
        TransactionExpired("b"),
    ]
    steps += [TransactionSet("b", ONGOING), PartitionsAdded("b", (TopicPartition("u", 1),), (), 91)]
    one_by_one, at_once = CoordinatorState(), CoordinatorState()
    for entry in steps:
        one_by_one.apply(entry)
    fewer = list(merge_added(steps))
    for entry in fewer:
        at_once.apply(entry)
    assert at_once.transactions == one_by_one.transactions
    assert (at_once.open_partitions, at_once.offsets.weight) == (one_by_one.open_partitions, one_by_one.offsets.weight)
    assert sum(isinstance(entry, PartitionsAdded) for entry in fewer) == 4
