"""The cost of one run: time, CPU by process, memory of the Python workers. They are read from `/proc`, so only on Linux."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import psutil

_TICKS = os.sysconf("SC_CLK_TCK")
_BUSY_SECONDS = 0.05
"""The least CPU seconds of a worker that took part, since idle ones wake up now and then."""
_SAMPLE_SECONDS = 0.5
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
    """The peak memory of the workers that did something in this run; 0 when none did."""
    log_size: int = 0
    """The bytes of the topic in the broker's log; 0 when nothing reached Kafka."""

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


class Meter:
    """Measures runs of one Spark driver (with its Python workers as children) beside one broker process."""

    def __init__(self, jvm_pid: int, broker_pid: int) -> None:
        self._jvm = psutil.Process(jvm_pid)
        self._broker = psutil.Process(broker_pid)

    def measure(self, rows: int, action: Callable[[], None]) -> Run:
        """Run `action`, which handles `rows` records, and return its cost."""
        sampler = _WorkerSampler(self._jvm)
        jvm, broker, machine = _own_cpu(self._jvm), _own_cpu(self._broker), _machine_cpu()
        start = time.perf_counter()
        with sampler:
            action()
        seconds = time.perf_counter() - start
        jvm, broker, machine = _own_cpu(self._jvm) - jvm, _own_cpu(self._broker) - broker, _machine_cpu() - machine
        python = sum(sampler.cpu.values())
        busy = [pid for pid, cpu in sampler.cpu.items() if cpu > _BUSY_SECONDS]
        return Run(
            rows=rows,
            seconds=seconds,
            python_cpu=python,
            jvm_cpu=jvm,
            broker_cpu=broker,
            other_cpu=max(0.0, machine - python - jvm - broker),
            worker_peak=max((sampler.peak[pid] for pid in busy), default=0),
        )


class _WorkerSampler:
    """Measures CPU and peak memory of the Python processes below the JVM, from entering to leaving it.

    It looks twice a second, because the accounts of workers that end are lost: PySpark's daemon ignores SIGCHLD, so the kernel
    adds them to no other process.
    """

    def __init__(self, jvm: psutil.Process) -> None:
        self.cpu: dict[int, float] = {}
        self.peak: dict[int, int] = {}
        self._jvm = jvm
        self._before: dict[int, float] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="worker-sampler", daemon=True)

    def __enter__(self) -> Self:
        for worker in self._jvm.children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess, OSError):
                self._before[worker.pid] = _own_cpu(worker)
                Path(f"/proc/{worker.pid}/clear_refs").write_text(_RESET_PEAK)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._look()

    def _watch(self) -> None:
        while not self._stop.wait(_SAMPLE_SECONDS):
            self._look()

    def _look(self) -> None:
        for worker in self._jvm.children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                self.cpu[worker.pid] = _own_cpu(worker) - self._before.get(worker.pid, 0.0)
                self.peak[worker.pid] = max(_peak_memory(worker.pid), self.peak.get(worker.pid, 0))


def _own_cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _machine_cpu() -> float:
    """Return the seconds that all cores together were busy since boot."""
    fields = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    user, nice, system, _idle, _iowait, interrupt, soft_interrupt, _stolen = fields
    return (user + nice + system + interrupt + soft_interrupt) / _TICKS


def _peak_memory(pid: int) -> int:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0
