"""Columns as JSON and as text, type by type. tests/spark/test_renderings.py asks Spark for the same."""

from __future__ import annotations

import base64
import json
import math
import os
import random
import struct
import subprocess
import sys
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_producer.record.rendering import as_json, as_text, objects
from tests.support.rendered import CASES, KEPT_NULLS


def rows(array: Any) -> Any:
    array.validate(full=True)
    return array.to_pylist()


@pytest.mark.parametrize("name", CASES)
def test_each_type_has_one_rendering(name: str) -> None:
    case = CASES[name]
    assert rows(as_json(case.column)) == list(case.json)
    assert rows(as_text(case.column)) == list(case.json if case.text is None else case.text)


@pytest.mark.parametrize("name", CASES)
def test_a_part_of_a_column_is_rendered_alike(name: str) -> None:
    case = CASES[name]
    assert rows(as_json(case.column.slice(1))) == list(case.json[1:])
    assert rows(as_json(case.column.slice(0, 0))) == []
    if not pa.types.is_union(case.column.type) and not pa.types.is_run_end_encoded(case.column.type):
        below_nulls = pa.concat_arrays([pa.nulls(3, case.column.type), case.column]).slice(2)
        assert rows(as_json(below_nulls)) == [None, *case.json]


def test_null_fields_are_kept_at_every_depth_where_they_are_to_be() -> None:
    assert rows(as_json(CASES["struct"].column, True)) == KEPT_NULLS


@pytest.mark.parametrize(
    ("columns", "left_out", "kept"),
    [
        ([[None, None], [1, 2], [3, None]], ['{"b":1,"c":3}', '{"b":2}'],
         ['{"a":null,"b":1,"c":3}', '{"a":null,"b":2,"c":null}']),
        ([[1, None], [None, None]], ['{"a":1}', "{}"], ['{"a":1,"b":null}', '{"a":null,"b":null}']),
        ([[None, 1]], ["{}", '{"a":1}'], ['{"a":null}', '{"a":1}']),
        ([[1, 2], [None, 3]], ['{"a":1}', '{"a":2,"b":3}'], ['{"a":1,"b":null}', '{"a":2,"b":3}']),
        ([], ["{}", "{}"], ["{}", "{}"]),
    ],
    ids=["one full", "none full", "one column", "first full", "none"],
)  # fmt: skip
def test_objects_have_their_commas_wherever_the_nulls_are(
    columns: list[Any], left_out: list[str], kept: list[str]
) -> None:
    names = list("abc")[: len(columns)]
    values = [as_json(pa.array(column, pa.int64())) for column in columns]
    assert rows(objects(names, values, 2)) == left_out
    assert rows(objects(names, values, 2, keep_nulls=True)) == kept


def test_names_of_fields_are_escaped() -> None:
    assert rows(objects(['a"\n'], [as_json(pa.array([1]))], 1)) == ['{"a\\"\\n":1}']


REFUSED: dict[str, tuple[Any, str]] = {
    "map by bytes": (pa.array([[(b"a", 1)]], pa.map_(pa.binary(), pa.int8())), "keys are binary has no JSON. Make its keys"),
    "map by struct": (
        pa.array([[({"a": 1}, 1)]], pa.map_(pa.struct([("a", pa.int8())]), pa.int8())), "are struct<a: int8> has no JSON",
    ),
    "two fields of one name": (
        pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"]), "two fields have the name 'a'. Give each a name",
    ),
    "no UTF-8": (pa.array([b"a", b"\xff"]).view(pa.string()), "a text is not UTF-8"),
    "no time of day": (pa.array([86_400_000_000]).cast(pa.time64("us")), "not before 24:00"),
    "no microseconds": (pa.array([2**60]).cast(pa.timestamp("s")), "out of bounds timestamp"),
    "key of a map in nanoseconds": (
        pa.array([[(1, 1)]], pa.map_(pa.timestamp("ns"), pa.int8())), "would lose data",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_json_is_refused(name: str) -> None:
    column, message = REFUSED[name]
    with pytest.raises(pa.ArrowException, match=message):
        as_json(column)


@given(st.lists(st.one_of(st.none(), st.text(st.characters(exclude_categories=["Cs"])))))
def test_strings_are_json_that_means_them(texts: list[str | None]) -> None:
    found = rows(as_json(pa.array(texts, pa.string())))
    assert [None if text is None else json.loads(text) for text in found] == texts


@given(st.lists(st.one_of(st.none(), st.binary())))
def test_bytes_are_base64(values: list[bytes | None]) -> None:
    wanted = [None if value is None else f'"{base64.b64encode(value).decode()}"' for value in values]
    assert rows(as_json(pa.array(values, pa.binary()))) == wanted


def test_floats_mean_the_same_number_in_as_few_digits_as_python_needs() -> None:
    random.seed(30)
    doubles = [struct.unpack("d", random.randbytes(8))[0] for _ in range(20_000)]
    doubles = [value for value in doubles if math.isfinite(value)]
    for value, text in zip(doubles, rows(as_json(pa.array(doubles))), strict=True):
        assert float(text) == value
        assert len(text.partition("E")[0].strip("-0").replace(".", "").strip("0")) <= len(
            repr(value).partition("e")[0].strip("-0").replace(".", "").strip("0")
        )


WITHOUT_PANDAS = """
import sys
from importlib.abc import MetaPathFinder
class NoPandas(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] == "pandas":
            raise ImportError(name)
sys.meta_path.insert(0, NoPandas())
import pyarrow as pa
from spark_producer.record.rendering import as_json, as_text
from tests.support.rendered import CASES
for name, case in CASES.items():
    assert as_json(case.column).to_pylist() == list(case.json), name
    assert as_text(case.column).to_pylist() == list(case.json if case.text is None else case.text), name
assert "pandas" not in sys.modules
"""


def test_nothing_depends_on_pandas() -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_PANDAS], capture_output=True, text=True, env=environment, timeout=120
    )
    assert done.returncode == 0, done.stderr
