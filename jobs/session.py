"""A Spark session for the jobs that keeps quiet.

Owns: settings of the session. Must not know: what the job does.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path

from display import orderly_stderr
from pyspark import SparkContext
from pyspark.sql import SparkSession

LOG_SETTINGS = Path(__file__).resolve().parent.parent / "conf" / "log4j2.properties"

JVM_ENDS_WITHIN = 30.0
"""Seconds; it takes less than one."""

SETTINGS = {
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={LOG_SETTINGS}",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.debug.maxToStringFields": "100",  # a flight has more columns than Spark shows without a warning
}


@contextlib.contextmanager
def quiet_session(name: str, *, local: bool = False) -> Iterator[SparkSession]:
    """Spark for one run, stopped at the end. Workers run this Python unless PYSPARK_PYTHON names another.

    `local`: on this machine, with all scratch files in a directory that is removed; else as spark-submit says.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
    _quiet_interrupts()
    with tempfile.TemporaryDirectory(prefix="pyproducer-spark-", ignore_cleanup_errors=True) as scratch:
        builder = SparkSession.builder.appName(name)
        if local:
            builder = builder.master("local[*]").config("spark.ui.enabled", "false")
            os.environ |= {"SPARK_LOCAL_DIRS": scratch, "SPARK_LOCAL_IP": "127.0.0.1"}
        for key, value in SETTINGS.items():
            builder = builder.config(key, value)
        builder = builder.config("spark.sql.warehouse.dir", str(Path(scratch, "warehouse")))
        with contextlib.ExitStack() as stack:
            with orderly_stderr(), _interrupted_later():
                stack.callback(_end_jvm)
                session = builder.getOrCreate()
                stack.callback(session.stop)
            yield session


def _end_jvm() -> None:
    """Wait until the JVM that this process started has removed its files and is gone; it ends when its stdin does."""
    gateway = SparkContext._gateway
    process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    if gateway is None or process is None:  # under spark-submit the JVM started us
        return
    SparkContext._gateway = SparkContext._jvm = None
    gateway.shutdown()
    if process.stdin is not None:
        process.stdin.close()
    try:
        process.wait(JVM_ENDS_WITHIN)
    except subprocess.TimeoutExpired:
        process.kill()


def _quiet_interrupts() -> None:
    """What Spark and py4j say of a Ctrl-C, several tracebacks, is not for people."""
    warnings.filterwarnings("ignore", message="Unable to cleanly shutdown Spark JVM process")
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(lambda record: "while sending command" not in record.getMessage())


@contextlib.contextmanager
def _interrupted_later() -> Iterator[None]:
    """Ctrl-C takes effect at the end of the body: a JVM whose Python leaves while it starts would never end."""
    seen = threading.Event()
    before = signal.signal(signal.SIGINT, lambda *_: seen.set())
    try:
        yield
    finally:
        # Spark has set a handler of its own, which talks to the JVM inside another call to it; stop() cancels jobs too.
        signal.signal(signal.SIGINT, before)
        if seen.is_set():
            raise KeyboardInterrupt
