"""The versions and the hardware for the report, without the name of the machine."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import subprocess
from pathlib import Path

from tests.support.ivy import java


def facts(kafka_version: str, spark_sink: str) -> dict[str, str]:
    """Return the facts that a reader needs to judge the figures."""
    packages = ("pyspark", "pyarrow", "numpy", "confluent-kafka")
    return {
        "cores": str(len(os.sched_getaffinity(0))),
        "processor": _processor(),
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB",
        "python": platform.python_version(),
        "java": _java_version(),
        "kafka broker": kafka_version,
        "spark's kafka sink": spark_sink,
        "pyproducer": _own_version(),
        **{package: importlib.metadata.version(package) for package in packages},
    }


def kernel_facts() -> list[str]:
    """Return the same as lines of Markdown, for benchmarks without Spark and brokers."""
    known = {"processor": _processor(), "python": platform.python_version(), "pyproducer": _own_version()}
    known |= {package: importlib.metadata.version(package) for package in ("pyarrow", "numpy", "kafka-python")}
    return [f"- {name}: {value}" for name, value in known.items()]


def _processor() -> str:
    found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return found.group(1) if found else platform.machine()


def _java_version() -> str:
    said = subprocess.run([java(), "-version"], capture_output=True, text=True, timeout=60, check=True).stderr
    found = re.search(r'version "([^"]+)"', said)
    return found.group(1) if found else "unknown"


def _own_version() -> str:
    version = importlib.metadata.version("pyproducer")
    root = Path(__file__).parent.parent
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=root, capture_output=True, text=True, timeout=60, check=False
    )
    return f"{version} ({done.stdout.strip()})" if done.returncode == 0 else version
