"""A control topic that lacks what the sink has committed: changed, deleted, created again, or shortened by retention."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from spark_producer.broker import BrokerSettings, LocalBroker
from spark_producer.common.cluster import ProducerIdAndEpoch
from spark_producer.errors import ExactlyOnceError, TopicNotFound
from spark_producer.exactly_once import driver
from spark_producer.exactly_once.cluster import control_log, fencing
from spark_producer.exactly_once.cluster.control_log import ControlLog
from spark_producer.exactly_once.cluster.coordinator_state import describe
from spark_producer.exactly_once.cluster.last_commit import EPOCH_MODULUS, is_missing, noted_commit, timeout_ms
from spark_producer.exactly_once.cluster.partition_state import offsets
from spark_producer.exactly_once.protocol.outcomes import NothingToAbort
from spark_producer.protocol.messages import DescribedTransaction
from tests.support.filled_tasks import batch, prepared, settings
from tests.unit.exactly_once.lossy_world import CONTROL, ONE, OTHER_TOPIC, SINK, ZERO, World

REFUSED = "has no record of the last one"


def delete(world: World, topic: str = CONTROL[0]) -> None:
    world.broker._call(lambda: world.broker._topics.delete_all([topic]))


def expire(world: World) -> None:
    """The coordinator forgets the control id: transactional.id.expiration.ms has passed."""
    coordinator: Any = world.broker._server._transactions._coordinator
    world.broker._call(lambda: coordinator._state.transactions.pop(f"pyproducer.{SINK}.ctl"))
    driver.close_all()


def refused(world: World, times: int = 3) -> None:
    """Every start of the query is refused, in whatever process, and not only the first."""
    for _ in range(times):
        with pytest.raises(ExactlyOnceError, match=REFUSED) as caught:
            driver.begin(world.sink)
        assert caught.value.kind == "NO_RECORD"
        driver.close_all()


@pytest.mark.parametrize("large", [False, True], ids=["inline", "transactions"])
def test_another_control_topic_is_refused_until_the_option_is_set_back(world: World, large: bool) -> None:
    world.commit(0, world.fill(0, (0, "a")) if large else batch(*ZERO, "a"))
    before = world.sink
    world.sink = before._replace(control_topic=OTHER_TOPIC)
    refused(world)
    world.sink = before
    world.run_again(0, batch(*ZERO, "a"))
    world.run_again(1, batch(*ZERO, "b"))
    assert world.rows() == ["a", "b"]


def test_another_topic_that_is_there_and_has_other_sinks_is_refused(world: World) -> None:
    driver.begin(world.sink._replace(name="other", control_topic=OTHER_TOPIC))
    world.commit(0, batch(*ZERO, "a"))
    world.sink = world.sink._replace(control_topic=OTHER_TOPIC)
    refused(world)
    assert world.rows() == ["a"]


def test_a_topic_that_is_deleted_between_two_batches_of_one_process_is_refused(world: World) -> None:
    world.commit(0, batch(*ZERO, "a"))
    world.handle = driver.begin(world.sink)
    world.commit(1, batch(*ZERO, "b"))
    world.handle = driver.begin(world.sink)
    delete(world)
    refused(world)
    assert CONTROL[0] not in world.broker.topics()
    world.broker.create_topic(CONTROL[0], 1)
    refused(world)
    assert world.rows() == ["a", "b"]


def test_a_failed_attempt_between_the_commit_and_the_loss_does_not_hide_it(world: World) -> None:
    """The coordinator shows Empty or CompleteAbort then, and no commit any more."""
    world.commit(0, batch(*ZERO, "a"))
    world.handle = driver.begin(world.sink)
    world.die_before_the_commit(1, batch(*ONE, "b"))
    driver.close_all()
    world.handle = driver.begin(world.sink)
    delete(world)
    driver.close_all()
    refused(world)


def test_an_older_record_of_the_sink_in_another_topic_is_no_excuse(world: World) -> None:
    """The query had gone over to the other topic, and the option is set back."""
    first = world.sink
    world.commit(0, batch(*ZERO, "a"))
    world.sink = first._replace(control_topic=OTHER_TOPIC)
    refused(world, 1)
    assert world.txn("resolve", SINK, "--control-topic", OTHER_TOPIC, "--accept-no-record", "--yes") == 0
    for number, row in enumerate("bcd", 1):
        world.run_again(number, batch(*ZERO, row))
    world.sink = first
    refused(world)
    world.sink = first._replace(control_topic=OTHER_TOPIC)
    world.run_again(3, batch(*ZERO, "d"))
    assert world.rows() == ["a", "b", "c", "d"]


def test_a_person_may_go_on_with_the_id_when_the_record_is_lost(world: World) -> None:
    world.commit(0, batch(*ZERO, "a"))
    delete(world)
    driver.close_all()
    assert world.txn("resolve", SINK, "--yes") != 0
    assert world.txn("resolve", SINK, "--accept-no-record", "--yes") == 0
    world.run_again(1, batch(*ZERO, "b"))
    assert world.rows() == ["a", "b"]
    assert world.txn("resolve", SINK, "--accept-no-record", "--yes") != 0, "there is a record now"


@pytest.mark.parametrize("decided", [False, True], ids=["done", "decided"])
def test_an_older_record_is_not_forgotten_when_the_last_one_is(
    world: World, decided: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command was given the wrong control topic at first."""
    if decided:
        world.die_after_the_commit_point(0, world.fill(0, (0, "a")), world.fill(1, (1, "b")))
    else:
        world.commit(0, batch(*ZERO, "a"), batch(*ONE, "b"))
    driver.close_all()
    assert world.txn("resolve", SINK, "--control-topic", OTHER_TOPIC, "--accept-no-record", "--yes") == 0
    refused(world)
    capsys.readouterr()
    assert world.txn("resolve", SINK, "--accept-no-record", "--yes") == 0
    assert f"{'COMMITTING' if decided else 'DONE'}, batch 0" in capsys.readouterr().out
    world.run_again(0, batch(*ZERO, "a"), batch(*ONE, "b"))
    world.run_again(1, batch(*ZERO, "c"))
    assert world.rows() == ["a", "b", "c"]


def test_what_was_decided_and_is_not_done_is_not_begun_with_a_lost_topic(world: World) -> None:
    done, left = world.fill(0, (0, "a")), world.fill(1, (0, "b"))
    world.die_after_the_commit_point(0, done, left)
    delete(world)
    driver.close_all()
    refused(world)
    driver.close_all()
    reported = [prepared(world.handle, 0, each) for each in (done, left)]
    with pytest.raises(TopicNotFound):
        driver.abort(world.sink, reported, 0)
    world.broker.create_topic(CONTROL[0])
    assert isinstance(driver.abort(world.sink, reported, 0), NothingToAbort)
    ended = describe(world.tasks.brokers, [done.transactional_id], world.tasks.client.deadline())
    assert [row and row.transaction_state for row in ended.values()] == ["Ongoing"], "a person decides"


@pytest.mark.parametrize("times", [1, 4])
def test_a_sink_that_never_committed_is_not_refused(world: World, times: int, caplog: pytest.LogCaptureFixture) -> None:
    """The first BEGIN died, or the first batches failed: with the same topic or with another one."""
    for _ in range(times):
        world.handle = driver.begin(world.sink)
        world.die_before_the_commit(0, batch(*ZERO, "a"))
        driver.close_all()
    world.sink = world.sink._replace(control_topic=OTHER_TOPIC)
    with caplog.at_level(logging.WARNING):
        world.run_again(0, batch(*ZERO, "a"))
    assert "its transactional id was used before" in caplog.text
    assert world.rows() == ["a"]


def test_a_first_begin_that_died_is_nothing_to_warn_of(caplog: pytest.LogCaptureFixture) -> None:
    with LocalBroker() as broker:
        world_sink = driver.SinkSettings(SINK, settings(broker.bootstrap_servers))
        with caplog.at_level(logging.WARNING):
            driver.begin(world_sink)
            driver.close_all()
            driver.begin(world_sink)
        driver.close_all()
    assert "was used before" not in caplog.text


def test_a_record_outlives_the_memory_of_the_coordinator(world: World) -> None:
    """transactional.id.expiration.ms has passed: the id begins with another producer id and epoch 0."""
    world.commit(0, batch(*ZERO, "a"))
    expire(world)
    world.run_again(0, batch(*ZERO, "a"))
    world.run_again(1, batch(*ZERO, "b"))
    world.run_again(1, batch(*ZERO, "b"))
    assert world.rows() == ["a", "b"]


def test_a_sink_of_an_earlier_version_goes_on(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fences of such a sink have no note."""
    with monkeypatch.context() as old:
        old.setattr(fencing, "timeout_ms", lambda *_: 60_000)
        world.commit(0, batch(*ZERO, "a"))
        world.run_again(1, batch(*ZERO, "b"))
        driver.begin(world.sink)
    driver.close_all()
    world.run_again(1, batch(*ZERO, "b"))
    world.run_again(2, batch(*ZERO, "c"))
    assert world.rows() == ["a", "b", "c"]


def test_the_policy_is_looked_at_by_each_begin(world: World) -> None:
    world.commit(0, batch(*ZERO, "a"))
    driver.begin(world.sink)
    world.broker._call(lambda: world.broker._topics.alter_all({CONTROL[0]: {"retention.ms": "60000"}}))
    with pytest.raises(ExactlyOnceError, match="it would lose control records"):
        driver.begin(world.sink)


def test_a_begin_takes_no_more_rounds_than_before() -> None:
    with LocalBroker(settings=BrokerSettings(transaction_version=2)) as broker:
        sink = driver.SinkSettings(SINK, settings(broker.bootstrap_servers))
        driver.begin(sink)
        [(_, cluster)] = driver._open
        before = cluster.client.rounds, cluster.client.requests
        driver.begin(sink)
        after = cluster.client.rounds, cluster.client.requests
        driver.close_all()
    assert (after[0] - before[0], after[1] - before[1]) == (3, 8)


FENCE = ProducerIdAndEpoch(7, 100)
RECORDS = [
    (None, None, False),
    (5, None, True),
    (5, ProducerIdAndEpoch(7, 5), False),  # its own
    (5, ProducerIdAndEpoch(7, 4), True),  # that of the commit before, with epochs that rise at each begin alone
    (5, ProducerIdAndEpoch(7, 3), True),
    (5, ProducerIdAndEpoch(7, 9), False),  # two commits followed the note
    (5, ProducerIdAndEpoch(8, 0), True),  # another producer's, of long ago
    (5, ProducerIdAndEpoch(7, 101), False),  # a newer driver's
]


@pytest.mark.parametrize(("noted", "last", "missing"), RECORDS)
def test_which_record_a_note_fits(noted: int | None, last: ProducerIdAndEpoch | None, missing: bool) -> None:
    assert is_missing(noted, FENCE, last) is missing


@pytest.mark.parametrize(
    "age", [1, EPOCH_MODULUS // 2, EPOCH_MODULUS - 1, EPOCH_MODULUS + 1, 3 * EPOCH_MODULUS + EPOCH_MODULUS // 2]
)
def test_a_record_of_long_ago_does_not_look_newer_than_the_note(age: int) -> None:
    """The note is an epoch modulo a number, so that epochs come round."""
    for committed in range(age, 12_000, 997):
        for fences in (1, 2, 50, EPOCH_MODULUS):
            fence, last = ProducerIdAndEpoch(7, committed + fences), ProducerIdAndEpoch(7, committed - age)
            assert is_missing(committed % EPOCH_MODULUS, fence, last), (committed, fences)


@pytest.mark.parametrize("fences", [1, 20, EPOCH_MODULUS, EPOCH_MODULUS + 1, 5 * EPOCH_MODULUS])
def test_a_query_may_fail_as_often_as_it_likes(fences: int) -> None:
    for committed in range(0, 12_000, 997):
        assert not is_missing(
            committed % EPOCH_MODULUS, ProducerIdAndEpoch(7, committed + fences), ProducerIdAndEpoch(7, committed)
        )
        newer = ProducerIdAndEpoch(7, committed + fences // 2)  # of a commit that no fence has noted
        assert fences > EPOCH_MODULUS or not is_missing(
            committed % EPOCH_MODULUS, ProducerIdAndEpoch(7, committed + fences), newer
        )


def test_a_control_topic_that_lost_its_last_records_is_refused(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unclean election took them; the record of the batch before is there."""
    world.commit(0, batch(*ZERO, "a"))
    client = world.tasks.client
    [end] = offsets(world.tasks.brokers, [CONTROL], client.deadline()).values()
    world.run_again(1, batch(*ZERO, "b"))
    driver.close_all()
    with monkeypatch.context() as shorter:
        shorter.setattr(ControlLog, "_end", lambda *_: end)
        shorter.setattr(control_log, "FETCH_BYTES", 1)  # a batch at a time, so that nothing after the end is read
        refused(world)
    world.run_again(1, batch(*ZERO, "b"))
    assert world.rows() == ["a", "b"]


@pytest.mark.parametrize("epoch", [0, 1, EPOCH_MODULUS - 1, EPOCH_MODULUS, 32_766])
def test_a_note_is_kept_by_fences(epoch: int) -> None:
    row = DescribedTransaction(0, "ctl", "CompleteCommit", 60_000, 0, 7, epoch)
    noted = noted_commit(row)
    assert noted == epoch % EPOCH_MODULUS
    for state in ("Empty", "Ongoing", "CompleteAbort", "PrepareAbort"):
        after = DescribedTransaction(0, "ctl", state, timeout_ms(noted), 0, 7, epoch + 1)
        assert noted_commit(after) == noted
        assert noted_commit(after._replace(transaction_timeout_ms=60_000)) is None
    assert noted_commit(None) is None
    assert 0 < timeout_ms(noted) < timeout_ms(None) == 60_000


def test_epochs_that_come_to_their_end_are_no_contradiction() -> None:
    assert not is_missing(0, ProducerIdAndEpoch(8, 1), ProducerIdAndEpoch(7, 32_766))
    assert not is_missing(32_766 % EPOCH_MODULUS, ProducerIdAndEpoch(8, 1), ProducerIdAndEpoch(7, 32_766))


@pytest.mark.parametrize(
    ("has_moved", "expired"),
    [(False, False), (True, False), (True, True)],
    ids=["no record", "an older record", "an older record of another producer"],
)
def test_a_repair_with_the_wrong_control_topic_aborts_no_task(
    world: World, capsys: pytest.CaptureFixture[str], has_moved: bool, expired: bool
) -> None:
    """The task's id was taken again, so its coordinator does not know any more that its rows were committed."""
    if has_moved:
        world.commit(0, batch(*ZERO, "z"))
    if expired:
        expire(world)
    world.sink = world.sink._replace(control_topic=OTHER_TOPIC)
    if has_moved and not expired:
        assert world.txn("resolve", SINK, "--control-topic", OTHER_TOPIC, "--accept-no-record", "--yes") == 0
    world.handle = driver.begin(world.sink)
    left = world.fill(0, (0, "a"), (1, "b"))
    world.lose(left, ZERO)
    with pytest.raises(ExactlyOnceError, match="lost the markers"):
        world.commit(1, left)
    world.lossy.clear()
    world.take_over(left)
    driver.begin(world.sink._replace(name="else", control_topic=CONTROL[0]))
    capsys.readouterr()
    assert world.txn("repair", SINK, "--topic", "rows", "--yes") == 1
    reported = capsys.readouterr()
    assert "whose outcome is unknown" in reported.out
    assert "is that its control topic?" in reported.err
    assert world.txn("repair", SINK, "--control-topic", OTHER_TOPIC, "--yes") == 0
    assert world.txn("resolve", SINK, "--control-topic", OTHER_TOPIC, "--yes") == 0
    assert world.rows() == ["a", "b", "z"][: 2 + has_moved]


def test_an_assumed_outcome_is_printed_for_each_transaction_that_it_decides(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    left = world.fill(0, (0, "a"), (1, "b"))
    for tp in (ZERO, ONE):
        world.lose(left, tp)
    world.take_over(left)
    world.lossy.clear()
    capsys.readouterr()
    assert world.txn("repair", SINK, "--topic", "rows", "--assume", "aborted", "--yes") == 0
    reported = capsys.readouterr().out
    for partition in (0, 1):
        assert (
            f"--assume aborted: rows-{partition}, rows from offset 0 on of producer {left.producer_id}, epoch 0"
            in reported
        )
    assert world.rows() == []
