"""The parts of one producer and their connections, with methods that only the data source uses.

A producer's methods use the parts that they need; `parts_of` in `producer.producer` returns them for the data source.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from spark_producer.accumulator import BufferPool
from spark_producer.accumulator.pool import new_memory
from spark_producer.common.backoff import Backoff
from spark_producer.config import ProducerConfig
from spark_producer.errors import IllegalState
from spark_producer.metrics import WriteReport
from spark_producer.network import Client, ConnectionSettings, principal
from spark_producer.partitioner import PartitionFunction, make_partitioner, resolve_partitioner
from spark_producer.producer.factories import make_accumulator, make_metadata, sender_settings
from spark_producer.producer.fork_guard import forbid_after_fork, is_forked
from spark_producer.producer.io_thread import IoThread
from spark_producer.producer.metadata_wait import MetadataWaiter
from spark_producer.producer.metrics_access import Meter
from spark_producer.producer.network_client import Connect
from spark_producer.producer.single_records import SingleRecords
from spark_producer.sender import KnownTopics, ProducerLoad, Sender
from spark_producer.telemetry.pusher import TelemetryPusher

if TYPE_CHECKING:  # only transactional producers import them
    from spark_producer.producer.transactional_records import TransactionalRecords
    from spark_producer.producer.transactions import Transactions
    from spark_producer.sender.transactions.manager import TransactionManager

MAX_SLEEP_S = 1.0
"""Maximum sleep in seconds of the I/O thread, and of a thread that waits for a topic, in case of a lost wake-up."""


@forbid_after_fork("take_report", "partition_count")
class Parts:
    """The parts of a producer. The constructor starts the I/O thread. The methods are thread-safe.

    External dependencies are arguments: `connect` creates the network, `clock` returns monotonic seconds, `memory` allocates
    buffers, and `max_sleep` is the maximum sleep of the threads that `MAX_SLEEP_S` names.

    Raises (constructor):
        ConfigError: the configuration is invalid. RuntimeError: the process cannot start another thread.
    """

    def __init__(
        self,
        config: ProducerConfig,
        partitioner: PartitionFunction | None = None,
        *,
        connect: Connect = Client,
        clock: Callable[[], float] = time.monotonic,
        memory: Callable[[int], memoryview] = new_memory,
        max_sleep: float = MAX_SLEEP_S,
    ) -> None:
        self.process = os.getpid()
        self.config = config
        chosen = partitioner or resolve_partitioner(config.partitioner_class)
        backoff = Backoff(config.retry_backoff_ms / 1000, config.retry_backoff_max_ms / 1000).delay
        self.meter = meter = Meter(config, threading.Lock(), clock, time.time)
        connection = ConnectionSettings.from_config(config)
        user = principal(connection.security)
        self.client = connect(connection, metrics=meter.events)
        self.metadata = make_metadata(config, backoff)
        self.pool = BufferPool(config.buffer_memory, config.batch_size, clock, meter.memory_waited, memory=memory)
        meter.set_level_sources(self.client, self.pool, self.metadata)
        self.accumulator = make_accumulator(config, self.pool, clock, self.client.wakeup)
        self.sender = Sender(self.accumulator, self.metadata, sender_settings(config, user), backoff, meter.events)
        self.partitioner = make_partitioner(config, ProducerLoad(self.accumulator, self.sender), chosen)
        self.topics = MetadataWaiter(
            config,
            self.metadata,
            KnownTopics(self.metadata, config.client_rack if config.partitioner_rack_aware else ""),
            clock=clock,
            backoff=backoff,
            wakeup=self.client.wakeup,
            check_open=self.accumulator.incomplete.check_open,
            waited=meter.events.metadata_waited,
            max_sleep=max_sleep,
            user=user,
        )
        self.singles = SingleRecords(
            config, self.accumulator, self.metadata, self.topics, self.partitioner, meter.events, clock
        )
        self.records: SingleRecords | TransactionalRecords = self.singles
        self.transactions: Transactions | None = None
        if self.sender.transactions is not None:
            self._make_transactional(self.sender.transactions, clock, max_sleep)
        self.telemetry: TelemetryPusher | None = None
        if config.enable_metrics_push:
            self.telemetry = TelemetryPusher(self.client, meter.reported_client, clock, time.time)
        in_flight = config.max_in_flight_requests_per_connection
        self.io_thread = IoThread(
            self.client,
            self.sender,
            self.accumulator,
            self.topics,
            meter,
            in_flight,
            max_sleep,
            self._wake,
            self.telemetry,
        )
        self.io_thread.start()

    def _make_transactional(self, manager: TransactionManager, clock: Callable[[], float], max_sleep: float) -> None:
        from spark_producer.producer.transactional_records import TransactionalRecords
        from spark_producer.producer.transactions import Transactions

        self.transactions = Transactions(
            manager,
            self.accumulator,
            max_block=self.config.max_block_ms / 1000,
            max_sleep=max_sleep,
            clock=clock,
            wakeup=self.client.wakeup,
            restart_partitioner=self.partitioner.restart,
            last_error=lambda: self.topics.last_error,
            waited=self.meter.events.transaction_call_completed,
        )
        self.records = TransactionalRecords(self.singles, self.transactions)

    def _wake(self) -> None:
        """Wake all threads that wait for the I/O thread, except those that flush."""
        self.topics.wake_waiters()
        if self.transactions is not None:
            self.transactions.wake_waiters()
        if self.telemetry is not None:
            self.telemetry.notify()

    @property
    def failed(self) -> bool:
        """Whether the producer can no longer be used: it has failed, was closed, or was created by another process."""
        backlog = self.accumulator.incomplete
        return is_forked(self) or backlog.closing or backlog.error is not None or not self.io_thread.is_alive

    def client_instance_id(self, timeout: float) -> str:
        """Wait up to `timeout` seconds for the client instance id; see `Producer.client_instance_id`."""
        from spark_producer.producer.client_instance import wait_for_client_instance_id

        if self.telemetry is None:
            raise IllegalState("there is no client instance id: enable.metrics.push is false. Set it to true")
        check_open = self.accumulator.incomplete.check_open
        return wait_for_client_instance_id(self.telemetry, timeout, self.meter.clock, self.client.wakeup, check_open)

    def take_report(self) -> WriteReport:
        """Return the report of the records acknowledged since the last call. Call it after `flush`."""
        return self.sender.take_report()

    def partition_count(self, topic: str | None) -> int:
        """Return the known number of partitions of a topic, or of all topics; 1 before the first record."""
        if topic is None:
            return max(1, sum(len(info.leaders) for info in self.metadata.cluster.topics.values()))
        info = self.metadata.cluster.topics.get(topic)
        return max(1, len(info.leaders)) if info else 1
