"""A Spark session for the jobs that keeps quiet.

Owns: settings of the session. Must not know: what the job does.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

from display import orderly_stderr
from pyspark.sql import SparkSession

LOG_SETTINGS = Path(__file__).resolve().parent.parent / "conf" / "log4j2.properties"

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
    with tempfile.TemporaryDirectory(prefix="pyproducer-spark-", ignore_cleanup_errors=True) as scratch:
        builder = SparkSession.builder.appName(name)
        if local:
            builder = builder.master("local[*]").config("spark.ui.enabled", "false")
            os.environ |= {"SPARK_LOCAL_DIRS": scratch, "SPARK_LOCAL_IP": "127.0.0.1"}
        for key, value in SETTINGS.items():
            builder = builder.config(key, value)
        with orderly_stderr():
            session = builder.config("spark.sql.warehouse.dir", str(Path(scratch, "warehouse"))).getOrCreate()
        try:
            yield session
        finally:
            session.stop()
