"""An embedded broker on the tiered engine with `--memory 64M`, in a process of its own whose memory a test measures.

Run it with a directory and `stuck` or `sound`: a stuck disk never completes a force of the journal once the broker has
started. It prints its port on one line.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import ClassVar, Final

from spark_producer.broker import BrokerSettings, LocalBroker
from spark_producer.broker.memory.plan import plan_memory
from spark_producer.broker.memory.sizes import MIB
from spark_producer.broker.settings import with_memory
from spark_producer.broker.storage.file_ops import SystemFiles
from spark_producer.broker.storage.tiered import TieredStorage

BUDGETS: Final = 64 * MIB


class StuckFiles(SystemFiles):
    """A disk that does not come back from a force of the journal once it `is_stuck`."""

    is_stuck: ClassVar[bool] = False

    def __init__(self) -> None:
        super().__init__()
        self._journals: set[int] = set()

    def open(self, path: Path, *, create: bool = False) -> int:
        file = super().open(path, create=create)
        if path.suffix == ".txn":
            self._journals.add(file)
        return file

    def force(self, file: int) -> None:
        if self.is_stuck and file in self._journals:
            threading.Event().wait()
        super().force(file)


class StuckTiers(TieredStorage):
    """Return the engine on a stuck disk."""

    def __init__(self, data_dir: Path, settings: BrokerSettings) -> None:
        super().__init__(data_dir, settings, files=StuckFiles())


def serve(directory: Path, is_stuck: bool) -> None:
    """Serve until the process is killed."""
    settings = BrokerSettings(storage_engine="tiered", sync_each_append=is_stuck, retention_check_s=0.5)
    kept = with_memory(settings, plan_memory(BUDGETS))
    with LocalBroker(directory, settings=kept, open_storage=StuckTiers if is_stuck else TieredStorage) as broker:
        StuckFiles.is_stuck = True
        print("port", broker.port, flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    serve(Path(sys.argv[1]), sys.argv[2] == "stuck")
