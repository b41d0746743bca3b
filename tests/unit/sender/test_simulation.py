"""Hundreds of seeded schedules of cuts, moves, timeouts, throttles, refusals (of the very first batch too) and splits. Ids:
ids SN, PB and RA; KIP-91.

After each: no record is in the log twice, none that was acknowledged is missing, records of a partition are in order, every
future is done, its callback came within delivery.timeout.ms of the batch's creation, and all memory is back.
"""

from __future__ import annotations

import random
from concurrent.futures import Future
from dataclasses import dataclass, field

import pytest

from spark_producer.accumulator import RecordMetadata
from spark_producer.common.cluster import TopicPartition
from spark_producer.errors import BufferExhausted
from tests.fakes.fake_clock import FakeClock
from tests.fakes.sender_fakes import TOPIC, SenderFakes, acquaint, sender_fakes
from tests.fakes.simulated_cluster import SimulatedCluster
from tests.support.campaigns import sample_and_campaign

DELIVERY_TIMEOUT = 2.0
MAX_INT = 2**31 - 1
PRODUCER_ID = 9
QUANTUM = 0.06
"""The longest step of the simulated clock."""


@dataclass
class WrittenRecord:
    """A record and the result that its writer got."""

    partition: int
    number: int
    sent_at: float
    future: Future[RecordMetadata] = field(default_factory=Future)
    called_at: float = -1.0


@dataclass
class Run:
    """One schedule."""

    choose: random.Random
    made: SenderFakes
    cluster: SimulatedCluster
    written_records: list[WrittenRecord] = field(default_factory=list)

    def write(self) -> None:
        partition = self.choose.randrange(len(self.cluster.logs))
        clock: FakeClock = self.made.fakes.clock
        for _ in range(self.choose.randint(1, 12)):
            one = WrittenRecord(partition, len(self.written_records), clock.now)

            def called(_: RecordMetadata, __: Exception | None, one: WrittenRecord = one) -> None:
                assert not one.future.done()
                one.called_at = clock.now

            value = (b"%08d" % one.number).ljust(self.choose.randint(8, 300), b".")
            try:
                one.future = self.made.fakes.append_one(
                    value, 1000 + one.number, called, TopicPartition(TOPIC, partition)
                )
            except BufferExhausted:
                return
            self.written_records.append(one)

    def turn(self) -> None:
        cluster, clock = self.cluster, self.made.fakes.clock
        cluster.now = clock.now
        step = self.made.step()
        for outgoing in step.requests:
            cluster.send(outgoing)
        if not step.requests:
            cluster.happen(self.made)
            clock.advance(self.choose.random() * QUANTUM)


def run(
    seed: int,
    *,
    idempotent: bool = True,
    keep_order: bool = False,
    rights_change: bool = False,
    recreated: float = 0.0,
    with_ids: bool = True,
    nothing_fails: bool = False,
    first_sequence: int = 0,
) -> Run:
    """`recreated` is how probable it is, at each turn, that the topic is deleted and created again.

    With `nothing_fails` there is time for every retry, and brokers reject no batch for good. With a `first_sequence` the
    brokers know the producer already.
    """
    choose = random.Random(seed)
    made = sender_fakes(
        ready=False,
        idempotent=idempotent,
        keep_order=keep_order,
        linger=choose.choice((0, 0.02)),
        memory=choose.choice((4096, 16384)),
        delivery_timeout=1e9 if nothing_fails else DELIVERY_TIMEOUT,
        retries=MAX_INT if nothing_fails else choose.choice((3, MAX_INT)),
        max_request_size=choose.choice((2000, 1 << 20)),
    )
    made.metadata.request_topics(TOPIC)
    cluster = SimulatedCluster(choose, choose.choice((0.0, 0.03, 0.1, 0.3)), partitions=3)
    made.network = cluster  # type: ignore[assignment]
    cluster.with_ids = with_ids
    if nothing_fails:
        cluster.accept_every_batch()
    if first_sequence:
        begin_at(first_sequence, made, cluster)
    schedule = Run(choose, made, cluster)
    for _ in range(120):
        if recreated and choose.random() < recreated:
            cluster.create_again()
        if choose.random() < 0.3:
            schedule.write()
        if rights_change and choose.random() < 0.1:
            log = choose.choice(cluster.logs)
            log.denied = not log.denied
        schedule.turn()
    made.fakes.incomplete.begin_close()
    for _ in range(2000):
        if made.fakes.incomplete.idle and not any(cluster.flying.values()):
            return schedule
        schedule.turn()
    raise AssertionError("the producer does not come to rest")


def begin_at(sequence: int, made: SenderFakes, cluster: SimulatedCluster) -> None:
    """Set the state as if the producer had written `sequence` records to each partition."""
    made.give_id(PRODUCER_ID, 0)
    for partition, log in enumerate(cluster.logs):
        queue = made.fakes.incomplete.queue_of(TopicPartition(TOPIC, partition))
        acquaint(queue, made.fakes.drainer.current_identity, made.now)
        queue.next_sequence, queue.last_acked = sequence, sequence - 1
        log.epochs[PRODUCER_ID] = 0, sequence


def check(schedule: Run, *, once: bool, ordered: bool) -> None:
    made, logs = schedule.made, schedule.cluster.logs
    assert made.fakes.incomplete.error is None
    for one in schedule.written_records:
        assert one.future.done()
        assert one.sent_at <= one.called_at <= one.sent_at + DELIVERY_TIMEOUT + QUANTUM
    for partition, log in enumerate(logs):
        written = [one for one in schedule.written_records if one.partition == partition]
        assert set(log.records) <= {one.number for one in written}
        for one in written:
            if one.future.exception(0) is None:
                offset = one.future.result(0).offset
                assert one.number in log.records if offset < 0 else log.records[offset] == one.number
        if once:
            assert len(set(log.records)) == len(log.records)
        if ordered:
            first = list(dict.fromkeys(log.records))
            assert first == sorted(first)
    assert made.fakes.pool.available == made.fakes.pool.total


@pytest.mark.slow
@pytest.mark.covers("SEC29")
def test_rights_that_come_and_go_lose_and_double_nothing_else() -> None:
    """The brokers do not count a batch that they refuse for want of a right: later ones must not be taken for a gap's end."""
    refused = 0
    for seed in range(100):
        schedule = run(seed, rights_change=True)
        check(schedule, once=True, ordered=True)
        refused += sum("user 'app'" in str(one.future.exception(0)) for one in schedule.written_records)
    assert refused > 100


def first_failure(first: int, count: int) -> str:
    """Return the first of `count` seeds that breaks a rule, and the rule; an empty text if none does."""
    for seed in range(first, first + count):
        try:
            check(run(seed), once=True, ordered=True)
        except AssertionError as error:
            return f"seed {seed}: {error}"
    return ""


@pytest.mark.covers("SN10–SN39")
@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 400, 100))
def test_kip91_no_schedule_loses_doubles_or_delays_a_record(first: int) -> None:
    assert first_failure(first, 100) == ""


@pytest.mark.covers("SN10–SN39")
@pytest.mark.slow
@pytest.mark.usefixtures("untraced")
@pytest.mark.parametrize("first", sample_and_campaign(range(1000, 5000, 500)))
def test_kip91_thousands_of_schedules(first: int) -> None:
    assert first_failure(first, 500) == ""


@pytest.mark.covers("SN14", "SN15", "SN18", "SN26")
@pytest.mark.parametrize("first_sequence", [0, MAX_INT - 50])
def test_with_time_for_every_retry_each_row_arrives_once_and_in_order(first_sequence: int) -> None:
    """Holds also where sequence numbers start again at 0 after the last one."""
    retries = 0
    starts_again = 0
    for seed in range(20):
        schedule = run(seed, nothing_fails=True, first_sequence=first_sequence)
        for partition, log in enumerate(schedule.cluster.logs):
            assert log.records == [one.number for one in schedule.written_records if one.partition == partition], (
                f"seed {seed}"
            )
        assert schedule.made.fakes.pool.available == schedule.made.fakes.pool.total
        retries += schedule.made.sender.take_report().retries
        next_sequences = [sequence for log in schedule.cluster.logs for _, sequence in log.epochs.values()]
        starts_again += any(sequence < first_sequence for sequence in next_sequences)
    assert retries > 300
    assert bool(starts_again) is bool(first_sequence)


@pytest.mark.covers("SN13", "SN5")
@pytest.mark.parametrize("seed", range(40))
def test_without_idempotence_one_in_flight_loses_nothing_and_keeps_the_order(seed: int) -> None:
    check(run(seed, idempotent=False, keep_order=True), once=False, ordered=True)
