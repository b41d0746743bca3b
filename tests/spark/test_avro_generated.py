"""Avro that is read by a query, over arbitrary schemas, in a driver whose time zone is not UTC."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.spark.isolated import REPOSITORY, run_program

PROGRAM = "from tests.spark.generated_avro import main\n\nmain()\n"


@pytest.mark.spark
@pytest.mark.covers("RD19")
@pytest.mark.parametrize(
    ("zone", "examples"),
    [
        pytest.param("America/New_York", 15, marks=pytest.mark.nightly),
        pytest.param("Asia/Kathmandu", 250, marks=pytest.mark.campaign),
        pytest.param("America/New_York", 250, marks=pytest.mark.campaign),
    ],
)
def test_values_of_a_query_are_those_of_fastavro(tmp_path: Path, zone: str, examples: int) -> None:
    said = run_program(PROGRAM, [zone, str(examples)], [REPOSITORY], tmp_path)
    found = re.search(r"(\d+) schemas, (\d+) rows are those of fastavro", said)
    assert found is not None
    assert int(found[1]) >= examples
    assert int(found[2]) > examples
