"""What one run costs: time, CPU by process, memory of the Python workers.

Owns: reading the kernel's accounts (`/proc`, so Linux only). Must not know: what runs.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

_TICKS = os.sysconf("SC_CLK_TCK")
_BUSY_SECONDS = 0.05
"""CPU from which on a worker took part: idle ones wake up now and then."""
_RESET_PEAK = "5"  # proc(5), clear_refs: set the peak resident set size to the current one


@dataclass(frozen=True)
class Run:
    """One measured run; CPU in seconds, memory in bytes."""

    rows: int
    seconds: float
    python_cpu: float
    jvm_cpu: float
    broker_cpu: float
    other_cpu: float
    worker_peak: int
    """Of the workers that did something in this run; 0 when none did."""

    @property
    def rate(self) -> float:
        """Records per second."""
        return self.rows / self.seconds

    def per_million(self, cpu: float) -> float:
        """CPU seconds per million records."""
        return cpu * 1_000_000 / self.rows

    @property
    def client_per_million(self) -> float:
        """CPU seconds of JVM and Python together per million records."""
        return self.per_million(self.python_cpu + self.jvm_cpu)


@dataclass(frozen=True)
class _Accounts:
    python: float
    jvm: float
    broker: float
    machine: float


class Meter:
    """Measures runs of one Spark driver (with its Python workers as children) beside one broker process."""

    def __init__(self, jvm_pid: int, broker_pid: int) -> None:
        self._jvm = psutil.Process(jvm_pid)
        self._broker = psutil.Process(broker_pid)

    def measure(self, rows: int, action: Callable[[], None]) -> Run:
        """Run `action`, which handles `rows` records, and return what it took."""
        idle = self._worker_cpu()
        for pid in idle:
            with contextlib.suppress(OSError):
                Path(f"/proc/{pid}/clear_refs").write_text(_RESET_PEAK)
        before, start = self._accounts(), time.perf_counter()
        action()
        seconds, after = time.perf_counter() - start, self._accounts()
        python, jvm, broker = after.python - before.python, after.jvm - before.jvm, after.broker - before.broker
        busy = [pid for pid, cpu in self._worker_cpu().items() if cpu - idle.get(pid, 0.0) > _BUSY_SECONDS]
        return Run(
            rows=rows,
            seconds=seconds,
            python_cpu=python,
            jvm_cpu=jvm,
            broker_cpu=broker,
            other_cpu=max(0.0, after.machine - before.machine - python - jvm - broker),
            worker_peak=max((_peak_memory(pid) for pid in busy), default=0),
        )

    def _accounts(self) -> _Accounts:
        # Children that ended are in the accounts of the parent that waited for them: the worker daemon, or the JVM.
        jvm, broker = self._jvm.cpu_times(), self._broker.cpu_times()
        python = jvm.children_user + jvm.children_system + sum(self._worker_cpu(with_ended=True).values())
        return _Accounts(python, jvm.user + jvm.system, broker.user + broker.system, _machine_cpu())

    def _worker_cpu(self, with_ended: bool = False) -> dict[int, float]:
        """CPU seconds of the Python processes below the JVM, with those of their ended children or without."""
        found = {}
        for worker in self._jvm.children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                times = worker.cpu_times()
                ended = times.children_user + times.children_system if with_ended else 0.0
                found[worker.pid] = times.user + times.system + ended
        return found


def _machine_cpu() -> float:
    """Seconds that all cores together were busy, since boot."""
    fields = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    user, nice, system, _idle, _iowait, interrupt, soft_interrupt, _stolen = fields
    return (user + nice + system + interrupt + soft_interrupt) / _TICKS


def _peak_memory(pid: int) -> int:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0
