"""The coordinator's state over a restart of the broker, the effect of time, and errors of the disk."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from spark_producer.broker.context import Context
from spark_producer.broker.coordinator import coordinator as coordinating
from spark_producer.broker.coordinator.log import NOTE_INTERVAL_S, CoordinatorLog
from spark_producer.broker.coordinator.timer import CoordinatorTimer
from spark_producer.broker.log.partition import Partition
from spark_producer.common.error_codes import Code
from spark_producer.errors import BrokerError, CorruptRecord
from tests.unit.broker.coordinator.conftest import Broker
from tests.unit.broker.coordinator.transaction_requests import (
    BATCH,
    EXPLICIT,
    IMPLICIT,
    MARKER,
    begin,
    committed,
    end,
    initialize,
    state,
    write,
)

PARTITIONS = [("t", index) for index in range(3)]
TXN_VERSIONS = pytest.mark.parametrize("txn_version", [EXPLICIT, IMPLICIT], ids=["explicit", "implicit"])


def begun(context: Context, txn_version: int = IMPLICIT) -> tuple[int, int]:
    """A producer with an open transaction in every partition."""
    code, *producer = initialize(context)
    assert code == Code.NONE
    me = (producer[0], producer[1])
    begin(context, me, txn_version, *PARTITIONS)
    return me


class Death(BaseException):
    """The end of the process: nothing catches it."""


@contextmanager
def dying_at(step: int, *, after: bool) -> Iterator[list[str]]:
    """Die before or after the so-and-so-many-th change of a file; yields the list of the changes that were tried."""
    tried: list[str] = []

    def deadly(name: str, real: Callable[..., object]) -> Callable[..., object]:
        def change(*args: object, **fields: object) -> object:
            tried.append(name)
            if len(tried) == step and not after:
                raise Death
            result = real(*args, **fields)
            if len(tried) == step:
                raise Death
            return result

        return change

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CoordinatorLog, "append", deadly("append", CoordinatorLog.append))
        patch.setattr(Partition, "write_marker", deadly("marker", Partition.write_marker))
        yield tried


CHANGES_OF_AN_END = ["append", "marker", "marker", "marker", "append"]


@pytest.mark.slow
@TXN_VERSIONS
@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", range(1, len(CHANGES_OF_AN_END) + 2))
def test_a_transaction_ends_as_a_whole_whenever_the_broker_dies(
    broker: Broker, tmp_path: Path, txn_version: int, commit: bool, after: bool, step: int
) -> None:
    me = begun(broker.context, txn_version)
    with dying_at(step, after=after) as tried:
        try:
            answered = end(broker.context, me, commit=commit, txn_version=txn_version)[0] == Code.NONE
        except Death:
            answered = False
    assert tried == CHANGES_OF_AN_END[:step]
    assert answered == (step > len(CHANGES_OF_AN_END))

    copy = tmp_path / "copy"
    shutil.copytree(broker.data_dir, copy, ignore=shutil.ignore_patterns(".lock"))
    found = Broker.again(copy)
    seen = {committed(found.context, partition) for partition in PARTITIONS}
    is_open = step == 1 and not after
    if is_open:
        assert seen == {(0, 0, 0)}
        assert state(found.context).transaction_state == "Ongoing"
    else:
        # A marker that was written already is written once more, which readers do not notice.
        assert {(end_of_reading >= 2, aborted) for _, end_of_reading, aborted in seen} == {(True, 0 if commit else 1)}
        assert state(found.context).transaction_state == ("CompleteCommit" if commit else "CompleteAbort")
    assert end(found.context, me, commit=commit, txn_version=txn_version)[0] == Code.NONE
    found.close()


@TXN_VERSIONS
def test_an_open_transaction_goes_on_after_a_restart(broker: Broker, txn_version: int) -> None:
    me = begun(broker.context, txn_version)
    before = state(broker.context)
    context = broker.restart()
    assert state(context) == before
    assert write(context, me, sequence=1, version=10 + txn_version) == Code.NONE
    assert end(context, me, txn_version=txn_version)[0] == Code.NONE
    assert committed(context) == (2 * BATCH + MARKER, 3, 0)


def test_producer_ids_do_not_repeat_after_a_restart(broker: Broker) -> None:
    first = initialize(broker.context, "a")[1]
    assert initialize(broker.restart(), "b")[1] > first
    assert initialize(broker.restart(), "a") == (Code.NONE, first, 1)


def test_a_restart_makes_the_log_small(broker: Broker) -> None:
    for _ in range(200):
        initialize(broker.context)
    log = broker.data_dir / "coordinator.log"
    large = log.stat().st_size
    assert initialize(broker.restart())[2] == 200
    assert log.stat().st_size < large / 50
    assert initialize(broker.restart())[2] == 201


def test_a_damaged_log_stops_the_broker_with_advice(broker: Broker) -> None:
    initialize(broker.context)
    broker.close()
    log = broker.data_dir / "coordinator.log"
    whole = log.read_bytes()
    log.write_bytes(b"x" + whole)
    with pytest.raises(CorruptRecord, match="Restore it from a backup; or start once with skip_damage"):
        broker.open()
    log.write_bytes(whole)
    broker.open()
    assert initialize(broker.context)[2] == 1


@pytest.mark.parametrize("rewritten", [False, True], ids=["as it grew", "rewritten"])
def test_an_older_copy_of_the_log_is_noticed_after_a_kill(broker: Broker, rewritten: bool) -> None:
    """The broker notes the length of its log each minute, and not only when it stops."""
    for name in "abc":
        initialize(broker.context, name)
    if rewritten:
        broker.restart()  # which makes the log small
        broker.context.coordinator._rewrite()
    log = broker.data_dir / "coordinator.log"
    older = log.read_bytes()
    initialize(broker.context, "d")
    clock = timer(broker)
    broker.now += NOTE_INTERVAL_S
    clock.run_if_due(broker.now)
    noted = log.stat().st_size
    initialize(broker.context, "e")
    left = broker.data_dir.with_name("left")
    shutil.copytree(broker.data_dir, left)
    (left / log.name).write_bytes(older)
    with pytest.raises(
        CorruptRecord, match=f"complete lines have {len(older)} bytes, and had at least {noted}.*--skip-damage"
    ):
        Broker.again(left)


def test_the_length_of_the_log_is_noted_once_a_minute_if_it_has_grown(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored: list[int] = []
    note = broker.context.topics.directory.store_coordinator_bytes

    def note_and_count(size: int) -> None:
        stored.append(size)
        note(size)

    monkeypatch.setattr(broker.context.coordinator._log, "_note_length", note_and_count)
    initialize(broker.context)
    stored.clear()
    clock = timer(broker)
    for expected in (1, 2):
        for _ in range(2 * int(NOTE_INTERVAL_S / 10)):
            broker.now += 10
            clock.run_if_due(broker.now)
        assert len(stored) == expected
        initialize(broker.context)


# The clock


def look(context: Context) -> None:
    """Make the broker check its timers and do the work that is due."""
    context.coordinator.check_timeouts()
    context.coordinator.write_markers()


def timer(broker: Broker) -> CoordinatorTimer:
    return CoordinatorTimer(broker.context.coordinator, 10.0, broker.now)


@TXN_VERSIONS
def test_a_transaction_is_aborted_when_its_time_is_up(broker: Broker, txn_version: int) -> None:
    clock = timer(broker)
    me = begun(broker.context, txn_version)
    broker.now += 60
    clock.run_if_due(broker.now)
    assert state(broker.context).transaction_state == "Ongoing"
    broker.now += 9
    assert clock.run_if_due(broker.now) == ()
    broker.now += 1
    assert sorted(clock.run_if_due(broker.now)) == PARTITIONS
    described = state(broker.context)
    assert (described.transaction_state, described.producer_epoch) == ("CompleteAbort", me[1] + 1)
    assert committed(broker.context)[2] == 1
    for version in (1, 4):
        code = Code.INVALID_PRODUCER_EPOCH if version == 1 else Code.PRODUCER_FENCED
        assert end(broker.context, me, version=version)[0] == code
    assert end(broker.context, me, version=5)[0] == Code.INVALID_TXN_STATE
    assert end(broker.context, me, version=5, commit=False)[0] == Code.NONE
    assert write(broker.context, me, sequence=1) == Code.INVALID_PRODUCER_EPOCH


def test_its_time_runs_from_the_first_partition_over_a_restart(broker: Broker) -> None:
    begun(broker.context)
    broker.now += 50
    begin(broker.context, (state(broker.context).producer_id, 0), IMPLICIT)
    context = broker.restart()
    broker.now += 11
    look(context)
    assert state(context).transaction_state == "CompleteAbort"


def test_the_level_of_the_cluster_decides_who_may_return_after_a_fence(broker: Broker) -> None:
    for level, code in ((2, Code.NONE), (0, Code.PRODUCER_FENCED)):
        broker.settings = replace(broker.settings, transaction_version=level)
        context = broker.restart()
        me = begun(context, EXPLICIT)
        broker.now += 61
        look(context)
        assert initialize(context, expected=me)[0] == code


def test_an_idle_id_is_forgotten_in_the_end(broker: Broker) -> None:
    week = broker.settings.transactional_id_expiration_ms / 1000
    initialize(broker.context, "idle")
    me = begun(broker.context)
    broker.now += week
    look(broker.context)
    assert state(broker.context, "idle").error_code == Code.TRANSACTIONAL_ID_NOT_FOUND
    assert state(broker.context).transaction_state == "CompleteAbort", "it was open, and only late"
    broker.now += week
    look(broker.context)
    context = broker.restart()
    assert state(context).error_code == Code.TRANSACTIONAL_ID_NOT_FOUND
    assert end(context, me)[0] == Code.INVALID_PRODUCER_ID_MAPPING
    code, producer_id, epoch = initialize(context)
    assert (code, epoch) == (Code.NONE, 0)
    assert producer_id > me[0]


# Markers


def test_many_markers_are_written_in_turns(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinating, "MAX_MARKERS_AT_ONCE", 2)
    clock = timer(broker)
    me = begun(broker.context)
    assert end(broker.context, me)[0] == Code.NONE
    assert state(broker.context).transaction_state == "PrepareCommit"
    assert [committed(broker.context, partition)[1] for partition in PARTITIONS] == [2, 2, 0]
    assert initialize(broker.context)[0] == Code.CONCURRENT_TRANSACTIONS
    assert end(broker.context, me)[0] == Code.CONCURRENT_TRANSACTIONS
    following = (me[0], me[1] + 1)
    assert write(broker.context, following, ("t", 2)) == Code.CONCURRENT_TRANSACTIONS
    assert write(broker.context, following, ("t", 2), version=11) == Code.NOT_ENOUGH_REPLICAS
    assert clock.due == float("-inf")
    assert clock.run_if_due(broker.now) == (("t", 2),)
    assert state(broker.context).transaction_state == "CompleteCommit"
    assert clock.due == broker.now + 10


def test_many_late_transactions_are_aborted_in_turns(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinating, "MAX_MARKERS_AT_ONCE", 2)
    clock = timer(broker)
    for name in "abc":
        _, *me = initialize(broker.context, name)
        for partition in PARTITIONS:
            assert write(broker.context, (me[0], me[1]), partition, transactional_id=name) == Code.NONE
    broker.now += 61
    turns = [len(clock.run_if_due(broker.now))]
    while clock.due < broker.now:
        turns.append(len(clock.run_if_due(broker.now)))
    assert turns == [2, 1, 2, 1, 2, 1], "not all at once, so that others are served between"
    assert {state(broker.context, name).transaction_state for name in "abc"} == {"CompleteAbort"}


def test_a_deleted_topic_needs_no_marker(broker: Broker) -> None:
    broker.context.topics.create("u", 1)
    me = begun(broker.context)
    begin(broker.context, me, IMPLICIT, ("u", 0))
    broker.context.topics.delete("u")
    assert end(broker.context, me)[0] == Code.NONE
    assert state(broker.context).transaction_state == "CompleteCommit"


def test_a_newer_marker_of_an_administrator_stands(broker: Broker) -> None:
    me = begun(broker.context)
    broker.context.topics.partition("t", 0).write_marker(me[0], me[1] + 9, False, 0)
    assert end(broker.context, me)[0] == Code.NONE
    assert state(broker.context).transaction_state == "CompleteCommit"
    assert [committed(broker.context, partition)[2] for partition in PARTITIONS] == [1, 0, 0]


def test_a_marker_that_the_disk_refuses_is_written_later(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = timer(broker)
    me = begun(broker.context)
    real = Partition.write_marker

    def refused(partition: Partition, *args: int, now_ms: int) -> int:
        if partition.index == 1:
            raise BrokerError("the disk is full", code=Code.KAFKA_STORAGE_ERROR)
        return real(partition, args[0], args[1], bool(args[2]), args[3], now_ms=now_ms)

    with monkeypatch.context() as patch:
        patch.setattr(Partition, "write_marker", refused)
        assert end(broker.context, me)[0] == Code.NONE
        assert [committed(broker.context, partition)[1] for partition in PARTITIONS] == [2, 0, 2]
        assert clock.due == broker.now + 10, "there is no use in trying at once"
        broker.now += 10
        clock.run_if_due(broker.now)
        assert state(broker.context).transaction_state == "PrepareCommit"
    broker.now += 10
    assert clock.run_if_due(broker.now) == (("t", 1),)
    assert state(broker.context).transaction_state == "CompleteCommit"


def test_what_cannot_be_kept_has_not_happened(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    me = begun(broker.context)
    before = state(broker.context)

    def refused(*_: object) -> None:
        raise BrokerError("the disk is full", code=Code.KAFKA_STORAGE_ERROR)

    with monkeypatch.context() as patch:
        patch.setattr(CoordinatorLog, "append", refused)
        assert end(broker.context, me)[0] == Code.KAFKA_STORAGE_ERROR
        assert initialize(broker.context)[0] == Code.KAFKA_STORAGE_ERROR
        assert initialize(broker.context, "new")[0] == Code.KAFKA_STORAGE_ERROR
        broker.now += 61
        look(broker.context)
        assert state(broker.context) == before
        assert committed(broker.context) == (0, 0, 0)
    look(broker.context)
    assert state(broker.context).transaction_state == "CompleteAbort"
