"""Spark finds the data source, and what it lacks is named."""

from __future__ import annotations

from tests.unit.test_layout import python


def test_sparks_lookup_finds_the_source() -> None:
    done = python(
        "import pyspark_pyproducer; "
        "assert pyspark_pyproducer.__all__ == ['DefaultSource']; "
        "assert pyspark_pyproducer.DefaultSource.name() == 'pyproducer'"
    )
    assert done.returncode == 0, done.stderr


def test_what_else_is_missing_is_not_blamed_on_spark() -> None:
    done = python("import sys; sys.modules['zstandard'] = None; import spark_producer.datasource.write.worker.task")
    assert done.stderr.splitlines()[-1].startswith("ModuleNotFoundError: import of zstandard halted")
    done = python("import sys; sys.modules['py4j'] = None; import spark_producer.datasource")
    assert "PySpark 4.0" not in done.stderr
    assert "py4j" in done.stderr
