"""The rows of a batch as keys, values and headers, without a broker."""

from __future__ import annotations

from typing import Any

import pyarrow
import pytest

from spark_producer.cli.row_values import RowValues

pa: Any = pyarrow
MAP = pa.map_(pa.string(), pa.int8())


def values(*, first: int = 0, keep_nulls: bool = False, **columns: Any) -> RowValues:
    return RowValues(pa.record_batch(columns), first, keep_nulls)


def test_headers_have_a_value_for_each_row_in_their_order() -> None:
    batch = values(
        text=pa.array(["a", None]).dictionary_encode(),
        number=pa.array([1e10, None]),
        raw=pa.array([b"\xff", b""]),
        tags=pa.array([[("x", 1)], None], MAP),
    )
    headers = batch.headers({"Trace": "text", "trace": "number", "raw": "raw", "tags": "tags"})
    headers.validate(full=True)
    first, second = headers.to_pylist()
    assert [(one["key"], one["value"]) for one in first] == [
        ("Trace", b"a"), ("trace", b"1.0E10"), ("raw", b"\xff"), ("tags", b'{"x":1}'),
    ]  # fmt: skip
    assert [(one["key"], one["value"]) for one in second] == [
        ("Trace", None),
        ("trace", None),
        ("raw", b""),
        ("tags", None),
    ]
    assert values(a=pa.array([], pa.string())).headers({"x": "a"}).to_pylist() == []


def test_a_row_that_cannot_be_rendered_is_named_by_its_number_in_the_file() -> None:
    texts = pa.array([b"a", b"b", b"\xff"]).view(pa.string())
    with pytest.raises(pa.ArrowInvalid, match=r"^row 103, column 't': "):
        values(first=100, t=texts).objects()


def test_a_type_without_json_is_named_by_its_column() -> None:
    keys = pa.array([[(b"a", 1)]], pa.map_(pa.binary(), pa.int8()))
    with pytest.raises(pa.ArrowTypeError, match=r"^column 't': a map whose keys are binary has no JSON"):
        values(t=keys).text("t")


def test_nulls_are_left_out_or_kept() -> None:
    columns: Any = {"a": pa.array([None, 1]), "b": pa.array([[{"c": None}], None])}
    assert values(**columns).objects().to_pylist() == ['{"b":[{}]}', '{"a":1}']
    assert values(**columns, keep_nulls=True).objects().to_pylist() == [
        '{"a":null,"b":[{"c":null}]}',
        '{"a":1,"b":null}',
    ]
