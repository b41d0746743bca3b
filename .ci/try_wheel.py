"""Try the installed wheel: it is whole and compiled, and writes to the embedded broker, with no Spark there.

`make wheel` and cibuildwheel run this in an environment that holds the wheel and what it depends on.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from importlib.metadata import distribution
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa

import spark_producer
from spark_producer import Producer, kernel
from spark_producer.broker import LocalBroker

TOPIC = "wheel"
SECONDS = 60


def check_files() -> None:
    """The package is the installed one, of the version that its metadata names, with types, licence and compiled kernel."""
    installed = distribution("pyproducer")
    names = {str(path) for path in installed.files or []}
    place = Path(sysconfig.get_path("platlib")).resolve()
    assert place in Path(spark_producer.__file__).resolve().parents, f"tried {spark_producer.__file__}, not the wheel"
    assert installed.version == spark_producer.__version__, (installed.version, spark_producer.__version__)
    assert "spark_producer/py.typed" in names, "py.typed is missing: type checkers would ignore our types"
    assert any(name.endswith("licenses/LICENSE") for name in names), "LICENSE is missing"
    assert kernel.LOADED.describe() == "compiled kernel", kernel.LOADED.describe()


def write(servers: str) -> None:
    """One record by hand, and three as columns with each codec."""
    rows = pa.record_batch({"key": pa.array([b"a", b"b", b"a"]), "value": pa.array([b"1", b"2", b"3"])})
    with Producer({"bootstrap.servers": servers}) as producer:
        assert producer.send(TOPIC, b"0", key=b"a").result(SECONDS).offset == 0
        for codec in ("gzip", "snappy", "lz4", "zstd"):
            with Producer({"bootstrap.servers": servers, "compression.type": codec}) as compressing:
                compressing.send_batch(rows, topic=TOPIC)
                compressing.flush()


def tail(servers: str) -> list[str]:
    """What the installed command `pyproducer tail` shows of the topic."""
    command = Path(sysconfig.get_path("scripts")) / "pyproducer"
    arguments = ["tail", TOPIC, "--bootstrap-servers", servers, "--from-beginning", "--max-records", "13"]
    done = subprocess.run([command, *arguments], stdout=subprocess.PIPE, text=True, timeout=SECONDS, check=True)
    return done.stdout.splitlines()


def main() -> None:
    """Try all of it, and say what was tried."""
    check_files()
    assert find_spec("pyspark") is None, "pyspark is installed: nothing that the wheel depends on may bring it"
    with LocalBroker() as broker:
        write(broker.bootstrap_servers)
        shown = tail(broker.bootstrap_servers)
    assert len(shown) == 13, shown
    python = f"Python {sys.version_info.major}.{sys.version_info.minor}"
    print(
        f"pyproducer {spark_producer.__version__} ({kernel.LOADED.describe()}, {python}): wrote and read {len(shown)} records"
    )


main()
