"""The experiments on the embedded broker's disks, small: group commit, one device or two, back-pressure; by counters alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import journal
from benchmarks.broker_memory import __main__ as command
from benchmarks.broker_memory import back_pressure, group_commit, two_devices
from benchmarks.broker_memory.back_pressure import Pressed, Pressure
from benchmarks.broker_memory.devices import Device, DeviceFiles, Speed, User, on_one_device, on_two_devices, user_of
from benchmarks.broker_memory.experiments import REFERENCE, Outcome, Scene, Sizes
from benchmarks.broker_memory.section import Section
from benchmarks.broker_memory.slow_broker import Slow, State
from spark_producer.broker.memory.sizes import KIB, MIB
from spark_producer.broker.storage.tiered.journal import JournalSettings

SMALL_LOAD = group_commit.Load(writers=(1, 8), appends=8, entry_bytes=100, force_s=0.02)
SLOWLY = Speed(force_s=0.002, bytes_per_s=5 * MIB)
"""A flush of a quarter of a MiB takes 50 ms, in which writers go on."""
SMALL_SIZES = replace(
    REFERENCE,
    options=replace(REFERENCE.options, write_cache_bytes=512 * KIB),
    partitions=2,
    entry_bytes=4 * KIB,
    tail_rate=1.0 * MIB,
    seconds=1.5,
)
SMALL_PRESSURE = Pressure(
    memory=32 * MIB,
    given={"storage.write.cache.bytes": "4M", "broker.publish.buffer.bytes": "2M", "journal.max.memory.bytes": "6M"},
    producers=4,
    records=600,
    flush_s=0.3,
    seconds=2.0,
    stuck_s=1.0,
)


def test_e4_eight_writers_have_at_least_five_batches_in_each_force(tmp_path: Path) -> None:
    """A force takes 50 ms here: all writers that the earlier force acknowledged append again before the next one begins."""
    shared = journal.in_groups(tmp_path, JournalSettings(), 0.05, 8, 15, 100)
    alone = journal.one_by_one(tmp_path, 0.001, 8, 3, 100)
    assert shared.per_force >= group_commit.MIN_GAIN * alone.per_force
    assert alone.per_force == 1


def test_e4_has_a_row_and_bars_for_each_number_of_writers() -> None:
    part = group_commit.section(SMALL_LOAD)
    assert [row.split("|")[1].strip() for row in part.table[2:]] == ["1", "8"]
    assert len({row.count("|") for row in part.table}) == 1
    assert [len(panel.patches) for panel in part.picture().axes] == [4, 4]


def test_e4_names_too_small_a_gain() -> None:
    result = journal.Result(rate=100, median=1, p99=1, per_force=1)
    found = [group_commit.Commit(writers, result._replace(per_force=4.9), result) for writers in (1, 8)]
    assert group_commit.faults(found) == ["8 writers have 4.9 batches in a force, not 5"]
    assert group_commit.faults([found[0]._replace(alone=result._replace(per_force=2))]) != []


def test_e5_a_journal_on_its_own_device_does_not_wait() -> None:
    one, two = found = two_devices.one_and_two(SMALL_SIZES, SLOWLY)
    assert two_devices.faults(found) == []
    assert (one.journal_waits > 0, two.journal_waits) == (True, 0)
    for each in found:
        assert len(each.acknowledged.waits) == each.written > 100
        assert each.flushes > 1
    part = two_devices.table(found)
    assert len(part) == 4
    assert len({row.count("|") for row in part}) == 1
    assert len(two_devices.picture(found).axes[0].lines) == 2
    swapped = two_devices.faults([two, one])
    assert any("on a device of its own" in fault for fault in swapped)
    assert any("never waited" in fault for fault in swapped)


def test_e5_devices_know_whose_forces_meet(tmp_path: Path) -> None:
    paths = [Path("journal/1.txn"), Path("ledgers/00000001.log"), Path("ledgers/index"), Path("catalog.json.new")]
    assert [user_of(path) for path in paths] == [User.JOURNAL, User.ENTRY_LOG, User.OTHER, User.OTHER]
    one, two = on_one_device(SLOWLY), on_two_devices(SLOWLY)
    assert one[User.JOURNAL] is one[User.OTHER]
    assert two[User.JOURNAL] is not two[User.ENTRY_LOG] is two[User.OTHER]
    assert Speed(0.5, 100).seconds(50) == 1.0
    device = Device(Speed(0, 1e9))
    files = DeviceFiles(dict.fromkeys(User, device))
    file = files.open(tmp_path / "1.txn", create=True)
    files.write(file, [b"12", b"3"], 0)
    files.force(file)
    assert (device.forces, device.waits) == ({User.JOURNAL: 1}, {})
    files.close(file)


@pytest.mark.slow
def test_e7_a_broker_takes_what_its_disk_takes_and_no_more_memory() -> None:
    found = back_pressure.disks(SMALL_PRESSURE)
    sound, slow, stuck = found
    assert back_pressure.faults(found) == []
    assert slow.last.flushes > 1
    assert slow.total <= slow.last.flushed + 2 * slow.half < sound.total
    assert stuck.last.pauses >= SMALL_PRESSURE.producers, "all of them are paused"
    assert stuck.slow.plan.publish_buffer < stuck.last.most_pending <= stuck.bound
    assert stuck.sent < stuck.budgets, "the rest is where it came from"
    rows = back_pressure.table(found)
    assert len({row.count("|") for row in rows}) == 1
    assert len(back_pressure.picture(found).axes) == 2


def test_e7_names_what_a_broker_without_limits_would_do() -> None:
    def pressed(name: str, total: int, **last: int) -> Pressed:
        first = State(0.0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
        states = [first, first._replace(at=1.0, **last)]
        return Pressed(name, Slow("", 0, {}, 1), states, [(0.0, 0), (1.0, total)], 0, total, 10, 100, 50, 0.0)

    sound = pressed("sound disk", 1000)
    slow = pressed("slow disk", 400, pauses=1, flushes=8, flushed=400)
    stuck = pressed("stuck disk", 0, pauses=1)
    assert back_pressure.faults([sound, slow, stuck]) == []
    larger = pressed("stuck disk", 1, most_pending=11, resident=101, cached=101)
    assert len(back_pressure.faults([sound, slow, larger])) == 4
    unpaced = pressed("slow disk", 501, flushes=8, flushed=400)
    assert len(back_pressure.faults([sound, unpaced, stuck])) == 2
    partial = pressed("slow disk", 80, pauses=1, flushes=4, flushed=80)
    assert len(back_pressure.faults([sound, partial, stuck])) == 1


def test_the_command_writes_all_experiments_or_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    near = Outcome("E1", 8, 15.0, 100, 100, 100, 100, 100, 100, 0, 0, 0, 0, 0, 0)
    scene = Scene("E1 tail", lambda _: near, SMALL_SIZES)
    monkeypatch.setattr(command, "scenes", lambda _: [scene])
    for fault in ([], ["too slow"]):
        monkeypatch.setattr(command, "PARTS", (("E4", lambda _, fault=fault: part_with(fault)),))
        page = tmp_path / f"{len(fault)}.md"
        assert command.main(["--page", str(page)]) == len(fault)
        assert page.exists() == (not fault)
    assert "E4: too slow" in capsys.readouterr().err
    text = (tmp_path / "0.md").read_text(encoding="utf-8")
    assert "## E4: parts" in text
    assert "![parts](results/0_e4.svg)\n\n| a |" in text
    assert (tmp_path / "results" / "0_e4.svg").exists()
    assert command.main(["--only", "E4"]) == 1
    with pytest.raises(SystemExit):
        command.main(["--only", "E4", "--page", str(tmp_path / "part.md")])


def part_with(faults: list[str]) -> Section:
    found = [group_commit.Commit(8, *2 * (journal.Result(1, 1, 1, 1),))]
    return Section("E4", "parts", "says nothing", ["| a |"], ["note"], lambda: group_commit.picture(found), faults)


def test_sizes_of_the_page_are_those_of_the_article() -> None:
    sizes: Sizes = REFERENCE
    assert (sizes.options.write_cache_bytes, sizes.options.read_cache_bytes) == (64 * MIB, 64 * MIB)
    assert sizes.tail_rate == 31e6
