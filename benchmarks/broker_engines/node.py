"""The broker that is measured, in a process of its own, so that its CPU time is its own: `node.running` starts one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from spark_producer.broker.local_broker import serve
from spark_producer.broker.settings import BrokerSettings

ROOT: Final = Path(__file__).parent.parent.parent
SECONDS: Final = 60.0
_TICKS: Final = os.sysconf("SC_CLK_TCK")


class Node(NamedTuple):
    """A broker that runs: its port and its process."""

    port: int
    pid: int

    @property
    def cpu(self) -> float:
        """The seconds of CPU that it has used, with all of its threads and what the system did for it."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    @property
    def memory(self) -> float:
        """The most memory that it has had at a time, in MiB (VmHWM)."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")) / 1024

    def kill(self) -> None:
        """End it by SIGKILL."""
        os.kill(self.pid, signal.SIGKILL)


def disk_used(directory: Path) -> float:
    """Return the MiB that the files in a directory take of the disk."""
    return sum(path.stat().st_blocks for path in directory.rglob("*") if path.is_file()) * 512 / 2**20


@contextmanager
def running(engine: str, directory: Path, *, force_ms: float | None = None) -> Iterator[Node]:
    """Run a broker during the `with` block.

    Args:
        engine: of its storage.
        directory: of its data.
        force_ms: a batch is on the disk before it is acknowledged, and each force takes so much longer than the disk of this
            machine needs; None if nothing waits for the disk.

    Raises:
        RuntimeError: it did not start.
    """
    force = "" if force_ms is None else str(force_ms)
    command = [sys.executable, "-m", "benchmarks.broker_engines.node", engine, str(directory), force]
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environment = os.environ | {"PYTHONPATH": path}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline().strip()
            if not line:
                raise RuntimeError(f"the broker with the engine {engine} did not start")
            yield Node(int(line), process.pid)
        finally:
            process.terminate()
            try:
                process.wait(SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                raise


def slow_forces(milliseconds: float) -> None:
    """Make every force of this process take this many seconds longer."""
    fdatasync = os.fdatasync

    def slow(file: int) -> None:
        fdatasync(file)
        time.sleep(milliseconds / 1000)

    os.fdatasync = slow  # type: ignore[assignment]  # of descriptors, which is what the broker has


def main(engine: str, directory: str, force_ms: str) -> None:
    """Serve until SIGTERM, and print the port."""
    settings = BrokerSettings(storage_engine=engine, sync_each_append=bool(force_ms))
    if force_ms and float(force_ms):
        slow_forces(float(force_ms))

    def ready(servers: str, _: Path) -> None:
        print(servers.rpartition(":")[2], flush=True)

    serve("127.0.0.1", 0, directory, settings=settings, ready=ready)


if __name__ == "__main__":
    main(*sys.argv[1:])
