"""Any sequence of appends, drains, answers, splits and time leaves the accumulator whole (hypothesis). Ids: RA1-RA32."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from spark_producer.accumulator import ProducerBatch
from spark_producer.common.cluster import TopicPartition
from spark_producer.errors import BufferExhausted
from tests.fakes.accumulator_fakes import NODE, OneLeader, accumulator_fakes, values_of

PARTITIONS = 3
DELIVERY_TIMEOUT = 3.0


class AccumulatorMachine(RuleBasedStateMachine):
    """An accumulator, with a record of what was appended to each partition and how it completed."""

    @initialize(keep_order=st.booleans(), linger=st.sampled_from((0.0, 0.5)))
    def begin(self, keep_order: bool, linger: float) -> None:
        self.fakes = accumulator_fakes(
            memory=8192, batch_size=512, linger=linger, keep_order=keep_order, delivery_timeout=DELIVERY_TIMEOUT
        )
        self.keep_order = keep_order
        self.appended: dict[int, list[bytes]] = {partition: [] for partition in range(PARTITIONS)}
        self.ended: dict[int, list[bytes]] = {partition: [] for partition in range(PARTITIONS)}
        self.flying: list[ProducerBatch] = []
        self.number = 0

    @rule(partition=st.integers(0, PARTITIONS - 1), count=st.integers(1, 8), width=st.integers(4, 700))
    def append(self, partition: int, count: int, width: int) -> None:
        for _ in range(count):
            value = b"%04d" % self.number + b"." * (width - 4)
            try:
                self.fakes.append(value, tp=TopicPartition("t", partition))
            except BufferExhausted:
                return
            self.number += 1
            self.appended[partition].append(value)

    @rule(max_bytes=st.integers(100, 3000))
    def drain(self, max_bytes: int) -> None:
        self.fakes.check()
        taken = self.fakes.drainer.drain(NODE, max_bytes, self.fakes.clock.now)
        assert len({batch.topic_partition for batch in taken}) == len(taken)
        assert len(taken) < 2 or sum(batch.size for batch in taken[1:]) <= max_bytes
        for batch in taken:
            batch.write_header()
        self.flying += taken

    @rule(seconds=st.sampled_from((0.01, 0.6, 5.0)))
    def wait(self, seconds: float) -> None:
        self.fakes.clock.advance(seconds)
        for batch in self.fakes.expire():
            assert self.fakes.clock.now - batch.created >= DELIVERY_TIMEOUT
            self._end(batch)

    @precondition(lambda self: self.flying)
    @rule(data=st.data(), outcome=st.sampled_from(("complete", "fail", "put back", "split")))
    def answer(self, data: st.DataObject, outcome: str) -> None:
        batch = self.flying.pop(data.draw(st.integers(0, len(self.flying) - 1)))
        if batch.state is not None:
            self.fakes.completion.remove_in_flight(batch)
            self.fakes.completion.refresh([batch.queue], self.fakes.clock.now)
        elif outcome == "put back":
            self.fakes.put_back(batch, backoff=0.05)
        elif outcome == "split" and batch.records_count > 1:
            self.fakes.split(batch)
        else:
            self._end(batch)
            if outcome == "fail":
                self.fakes.fail(batch, ValueError("refused"))
            else:
                self.fakes.complete(batch)

    @rule(epoch=st.integers(0, 3))
    def move(self, epoch: int) -> None:
        self.fakes.leaders = OneLeader({TopicPartition("t", 0): (NODE, epoch)})

    def _end(self, batch: ProducerBatch) -> None:
        if batch.in_flight:
            values = [value for value in values_of(batch) if value is not None]
            self.ended[batch.topic_partition.partition] += values
        else:
            self.ended[batch.topic_partition.partition] += [b""] * batch.records_count

    @invariant()
    def memory_is_that_of_the_batches(self) -> None:
        accumulator = self.fakes.accumulator
        batches = {
            id(batch): batch
            for queue in accumulator.incomplete.queues.values()
            for batch in (*queue.batches, *queue.in_flight)
        }
        buffers = {
            id(batch.buffer.obj): len(batch.shared_buffer.buffer if batch.shared_buffer else batch.buffer)
            for batch in batches.values()
        }
        assert self.fakes.pool.total - self.fakes.pool.available == sum(buffers.values())
        # The counts of flights and the order of ages are invariants between calls, and shown by no call.
        assert self.fakes.drainer._in_flight_bytes.size == sum(batch.capacity for batch in self.flying)

    @invariant()
    def queues_are_in_order_and_one_in_flight_is_one(self) -> None:
        for queue in self.fakes.incomplete.queues.values():
            for batches in (list(queue.batches), queue.in_flight):
                numbers = [batch.number for batch in batches]
                assert numbers == sorted(numbers)
            assert not self.keep_order or len(queue.in_flight) <= 1

    @invariant()
    def ages_are_in_order(self) -> None:
        created = [batch.created for batch in self.fakes.incomplete._ages]
        assert created == sorted(created)

    def teardown(self) -> None:
        if not hasattr(self, "fakes"):
            return
        self.fakes.incomplete.begin_close()
        for _ in range(1000):
            if self.fakes.incomplete.idle and not self.flying:
                break
            self.fakes.clock.advance(0.1)
            self.drain(3000)
            while self.flying:
                batch = self.flying.pop(0)
                self._end(batch) if batch.state is None else None
                self.fakes.complete(batch)
        assert self.fakes.incomplete.idle
        assert self.fakes.pool.available == self.fakes.pool.total
        for partition, values in self.appended.items():
            assert len(self.ended[partition]) == len(values)
            reported = [value for value in self.ended[partition] if value]
            assert len(set(reported)) == len(reported)
            assert set(reported) <= set(values)


AccumulatorMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestAccumulatorMachine = AccumulatorMachine.TestCase
