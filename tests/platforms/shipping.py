"""Send the whole environment along with a job (`--archives`), to executors that have nothing of ours, and look what wrote there.

    python -m tests.platforms.shipping

Each master starts executors in processes and folders of their own, as YARN and EMR do. The rows come from Python workers of the
unpacked environment, so each row has the kernel of its worker.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from spark_producer.broker import LocalBroker
from tests.platforms.environments import HOME, build_wheel, make, renew
from tests.platforms.program import read
from tests.support.ports import free_ports
from tests.support.processes import ChildProcess
from tests.support.waiting import wait_until

ROWS = 1_000
SECONDS = 240
ENVIRONMENT = "shipped"
JOB = """
import sys
from pyspark.sql import SparkSession
import spark_producer

def with_kernel(batches):
    import os, sys
    import pyarrow as pa
    from spark_producer import kernel
    for batch in batches:
        about = f"{sys.executable}|{os.getcwd()}|{kernel.LOADED.describe()}"
        yield pa.record_batch({"value": pa.array([f"{row}|{about}" for row in batch.column(0).to_pylist()])})

spark = SparkSession.builder.config("spark.ui.enabled", "false").getOrCreate()
spark_producer.register(spark)
rows = spark.range(int(sys.argv[3]), numPartitions=2).mapInArrow(with_kernel, "value string")
options = {"kafka.bootstrap.servers": sys.argv[1], "topic": sys.argv[2]}
rows.write.format("pyproducer").mode("append").options(**options).save()
spark.stop()
"""


def packed(home: Path) -> tuple[Path, Path]:
    """The driver's Python, and its environment as an archive."""
    wheel = build_wheel()
    python = make(Path(sys.executable), ENVIRONMENT, ["pyspark", "pandas", "venv-pack", "setuptools<81", str(wheel)])
    renew(python, wheel)
    archive = home / "environment.tar.gz"
    command = [
        str(python.with_name("venv-pack")),
        "--quiet",
        "--prefix",
        str(python.parents[1]),
        "--output",
        str(archive),
    ]
    # Executors are Spark's, and have its jars. More compression takes minutes.
    command += ["--compress-level", "1", "--force", "--exclude", "*/pyspark/jars/*", "--exclude", "*/pyspark/work/*"]
    subprocess.run(command, check=True, timeout=SECONDS)
    return python, archive


@contextmanager
def standalone(python: Path, home: Path) -> Iterator[str]:
    """The address of a master with one worker."""
    spark = next((python.parents[1] / "lib").glob("python*/site-packages/pyspark"))
    port, pages, others = free_ports(3)
    settings = {
        "SPARK_HOME": str(spark),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_WORKER_DIR": str(home / "work"),
        "PYTHONPATH": "",
    }
    program = [str(spark / "bin" / "spark-class"), "org.apache.spark.deploy"]
    address = f"spark://127.0.0.1:{port}"
    command = [
        program[0],
        f"{program[1]}.master.Master",
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--webui-port",
        str(pages),
    ]
    master = ChildProcess(command, home / "master.log", settings)
    try:
        wait_until(
            lambda: "Starting Spark master" in master.tail(),
            "the master starts",
            seconds=SECONDS,
            pause=0.1,
            more=master.tail,
            ended=master.has_ended,
        )
        command = [
            program[0],
            f"{program[1]}.worker.Worker",
            address,
            "--cores",
            "2",
            "--memory",
            "1g",
            "--webui-port",
            str(others),
        ]
        worker = ChildProcess(command, home / "worker.log", settings)
        try:
            yield address
        finally:
            worker.kill()
    finally:
        master.kill()


def ship(python: Path, archive: Path, master: str, home: Path) -> list[str]:
    """Return what each row has noted of its worker."""
    job = home / "job.py"
    job.write_text(JOB)
    # Spark's planner is a process beside the driver, and starts PYSPARK_PYTHON there too.
    if not (home / "environment").exists():
        shutil.unpack_archive(archive, home / "environment", filter="fully_trusted")
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK", "PYTHONPATH"))
    }
    with LocalBroker() as broker:
        arguments = [
            "--master",
            master,
            "--archives",
            f"{archive}#environment",
            str(job),
            broker.bootstrap_servers,
            "shipped",
            str(ROWS),
        ]
        done = subprocess.run(
            [str(python.with_name("spark-submit")), *arguments],
            cwd=home,
            env={
                **kept,
                "PYSPARK_DRIVER_PYTHON": str(python),
                "PYSPARK_PYTHON": "./environment/bin/python",
                "SPARK_LOCAL_IP": "127.0.0.1",
            },
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(done.stdout[-100_000:] + done.stderr[-100_000:])
        return read(broker.bootstrap_servers, "shipped")


def judge(values: list[str], driver: Path) -> str:
    """Return the faults: rows that are missing or there twice, and workers that do not run from the archive.

    The archive is unpacked into the folder of each executor, which may itself lie below the driver's installation of Spark.
    """
    reported = [value.split("|") for value in values]
    if sorted(int(row) for row, *_ in reported) != list(range(ROWS)):
        return f"{len(reported)} rows instead of {ROWS}, each once"
    for _, executable, folder, kernel in reported:
        unpacked = Path(folder) / "environment" / "bin" / "python"
        if kernel != "compiled kernel" or Path(executable) != unpacked or unpacked == driver:
            return f"a worker was {executable} in {folder} with the {kernel}"
    return ""


def main() -> int:
    """Ship to each kind of master; how many failed."""
    failed = 0
    HOME.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        python, archive = packed(home)
        print(f"the archive has {archive.stat().st_size >> 20} MiB")
        with standalone(python, home) as address:
            for master in ("local-cluster[2,1,1024]", address):
                wrong = judge(ship(python, archive, master, home), python)
                print(
                    f"--archives, {master.partition(':')[0]}: {wrong or 'every row once, by the compiled kernel of the archive'}"
                )
                failed += bool(wrong)
    return failed


if __name__ == "__main__":
    sys.exit(main())
