"""The benchmark of first writes: its table; figures are not judged here."""

from __future__ import annotations

from pathlib import Path

from benchmarks.first_write import imports, page, zipped_path

RESULTS = {
    "writes": {"kafka": [[1.0, 0.5, 0.2, 0.1], [1.2, 0.3, 0.2, 0.1]], "pyproducer": [[6.0, 0.4, 0.2, 0.1]]},
    "zip": [0.7, 0.9, 0.8],
    "folder": [0.2, 0.2, 0.1],
}


def test_the_table_has_the_median_of_every_write() -> None:
    text = page(RESULTS)
    assert "| Spark's sink | 1.10 | 0.40 | 0.20 | 0.10 |" in text
    assert "| pyproducer | 6.00 | 0.40 | 0.20 | 0.10 |" in text
    assert "0.80 s, or 0.20 s" in text


def test_sparks_own_archive_is_what_is_imported() -> None:
    archives = [Path(archive) for archive in zipped_path().split(":")]
    assert any(archive.name == "pyspark.zip" for archive in archives)
    assert all(archive.exists() for archive in archives)
    assert all(seconds > 0 for seconds in imports(zipped_path()))
