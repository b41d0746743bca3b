"""A Spark session for the jobs, which prints only warnings and errors."""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

from display import orderly_stderr
from interrupts import interrupted_later
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

LOG_SETTINGS = Path(__file__).resolve().parent.parent / "conf" / "log4j2.properties"

JVM_END_TIMEOUT = 30.0
"""Maximum seconds for the JVM to end; it takes less than one."""

SETTINGS = {
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={LOG_SETTINGS}",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.debug.maxToStringFields": "100",  # a flight has more columns than Spark shows without a warning
}


@contextlib.contextmanager
def quiet_session(name: str, *, local: bool = False) -> Iterator[SparkSession]:
    """Start Spark for one run, and stop it at the end. Workers run this Python unless PYSPARK_PYTHON names another.

    With `local` it runs on this machine, with all scratch files in a directory that is removed. Otherwise spark-submit decides.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
    _quiet_interrupts()
    with contextlib.ExitStack() as stack:
        with interrupted_later():
            made = tempfile.TemporaryDirectory(prefix="pyproducer-spark-", ignore_cleanup_errors=True)
            scratch = stack.enter_context(made)
        settings = [*SETTINGS.items(), ("spark.app.name", name), ("spark.sql.warehouse.dir", f"{scratch}/warehouse")]
        if local:
            settings += [("spark.master", "local[*]"), ("spark.ui.enabled", "false")]
            os.environ |= {"SPARK_LOCAL_DIRS": scratch, "SPARK_LOCAL_IP": "127.0.0.1"}
        with orderly_stderr():
            with interrupted_later():  # a JVM whose Python ends while it starts would never end
                # When Spark has started, it sets a handler of its own, which talks to the JVM inside another call to it.
                # So the earlier handler comes back; stop() cancels jobs too.
                stack.callback(_end_jvm)
                stack.callback(SparkContext.getOrCreate(SparkConf().setAll(settings)).stop)
            with interrupted_later():
                session = SparkSession.builder.getOrCreate()
                stack.callback(session.stop)
        yield session


def _end_jvm() -> None:
    """Wait until the JVM that this process started has removed its files and ended; it ends when its stdin is closed."""
    gateway = SparkContext._gateway
    process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    if gateway is None or process is None:  # under spark-submit the JVM started us
        return
    SparkContext._gateway = SparkContext._jvm = None
    gateway.shutdown()
    if process.stdin is not None:
        process.stdin.close()
    try:
        process.wait(JVM_END_TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _quiet_interrupts() -> None:
    """Hide the tracebacks that Spark and py4j print after a Ctrl-C."""
    warnings.filterwarnings("ignore", message="Unable to cleanly shutdown Spark JVM process")
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(lambda record: "while sending command" not in record.getMessage())
