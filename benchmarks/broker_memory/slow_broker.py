"""An embedded broker with the tiered engine on a slow or stuck disk, in a process of its own that reports its state.

It is given a `Slow` as JSON. It prints its port in a line, and then again and again a `State`, until it is killed.
"""

from __future__ import annotations

import json
import logging
import math
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.broker_memory.devices import Device, DeviceFiles, Speed, User
from spark_producer.broker import BrokerSettings, LocalBroker
from spark_producer.broker.memory.plan import MemoryPlan, plan_memory
from spark_producer.broker.memory.system_memory import system_memory
from spark_producer.broker.settings import with_memory
from spark_producer.broker.storage.tiered import TieredStorage
from spark_producer.broker.storage.tiered.options import options_of

TOPIC: Final = "t"
REPORT_S: Final = 0.02


@dataclass(frozen=True)
class Slow:
    """A broker with `memory` bytes for both budgets, of which some parts may be `given`.

    flush_s: the seconds that the disk takes to force an entry log. is_stuck: it never ends to force the journal.
    """

    directory: str
    memory: int
    given: dict[str, str]
    partitions: int
    flush_s: float = 0.0
    is_stuck: bool = False

    @property
    def plan(self) -> MemoryPlan:
        """The memory plan."""
        return plan_memory(self.memory, self.given)


class State(NamedTuple):
    """The state of the broker at a time of the machine's monotonic clock. Sizes are in bytes.

    pending, most_pending: of Produce requests that are not answered, now and at most. journal: of batches that the journal has
    not confirmed. cached: of both halves of the write cache. resident: of the process.
    """

    at: float
    pending: int
    most_pending: int
    pauses: int
    journal: int
    cached: int
    flushes: int
    flushed: int
    flush_us: int
    resident: int


def state(broker: LocalBroker, storage: TieredStorage) -> State:
    """Look how the broker is. Numbers are read as they are, without the broker's thread."""
    published, engine = broker._server.clients.publish_buffer, storage.engine
    flush = engine.counters.flush
    return State(
        time.monotonic(),
        published.bytes.amount,
        int(published.bytes.peak),
        published.pauses,
        engine.journal.waiting_bytes,
        engine.counters.write_cache.bytes,
        flush.count,
        flush.bytes,
        flush.us,
        system_memory().resident or 0,
    )


def serve(slow: Slow) -> None:
    """Serve until the process is killed."""
    sound = Speed(0.0, math.inf)
    devices = {user: Device(sound) for user in User}
    devices[User.ENTRY_LOG] = Device(Speed(slow.flush_s, math.inf))
    opened: list[TieredStorage] = []

    def open_storage(data_dir: Path, settings: BrokerSettings) -> TieredStorage:
        files = DeviceFiles(devices)
        opened.append(TieredStorage(data_dir, settings, options=options_of(settings.memory), files=files))
        return opened[-1]

    settings = with_memory(BrokerSettings(storage_engine="tiered", sync_each_append=True), slow.plan)
    with LocalBroker(slow.directory, settings=settings, open_storage=open_storage) as broker:
        broker.create_topic(TOPIC, slow.partitions)
        if slow.is_stuck:
            devices[User.JOURNAL].stick()
        print(broker.port, flush=True)
        while True:
            print(json.dumps(state(broker, opened[0])), flush=True)
            time.sleep(REPORT_S)


def as_argument(slow: Slow) -> str:
    """Return what `main` is to be given."""
    return json.dumps(asdict(slow))


if __name__ == "__main__":
    logging.getLogger("spark_producer").setLevel(logging.ERROR)  # it has one real device, of which it would be warned
    serve(Slow(**json.loads(sys.argv[1])))
