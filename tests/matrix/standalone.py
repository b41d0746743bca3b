"""A cluster of Spark's own, with two workers on hosts of their own: Spark does not speculate on the host of the first attempt.

Owns: its processes. Must not know: what runs on it.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.support.class_archives import SPARK_JVM
from tests.support.ports import free_ports
from tests.support.processes import ChildProcess
from tests.support.waiting import wait_until

HOSTS = ("127.0.0.2", "127.0.0.3")
SECONDS = 90.0


@contextmanager
def standalone(home: Path) -> Iterator[str]:
    """The address of its master, for a `with` block. Each worker has one core, and memory for one executor."""
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    start = [str(Path(spec.origin).parent / "bin" / "spark-class")]
    port = free_ports(1)[0]
    address = f"spark://127.0.0.1:{port}"
    environment = {
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": " ".join(SPARK_JVM),
        "PYSPARK_PYTHON": sys.executable,
    }
    named = "org.apache.spark.deploy."
    with ExitStack() as stack:

        def begin(log: str, *arguments: str) -> ChildProcess:
            child = ChildProcess([*start, *arguments, "--webui-port", "0"], home / log, environment)
            stack.callback(child.kill)
            return child

        master = begin("master.log", named + "master.Master", "--host", "127.0.0.1", "--port", str(port))
        for host in HOSTS:
            folder = home / f"worker-{host}"
            begin(
                f"{host}.log",
                named + "worker.Worker",
                address,
                "--host",
                host,
                "--cores",
                "1",
                "--memory",
                "512m",
                "--work-dir",
                str(folder),
            )
        wait_until(
            lambda: (home / "master.log").read_text().count("Registering worker") >= len(HOSTS),
            "Spark's cluster starts",
            seconds=SECONDS,
            more=master.tail,
            ended=master.has_ended,
        )
        yield address
