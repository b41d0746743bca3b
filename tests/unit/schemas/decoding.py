"""Columns decoded by both kernels.

Owns: that the kernels agree, and that the arrays are valid. Must not know: which value a test expects.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple
from unittest import mock

import pyarrow as pa

from spark_producer.kernel import avro_decode, compiled_avro_decode
from spark_producer.kernel.avro_program import Failure, Program
from spark_producer.schemas import decoded_column
from spark_producer.schemas.decoded_column import ColumnDecoder
from spark_producer.schemas.reader_types import TypeRules
from spark_producer.schemas.references import UnknownSchema
from spark_producer.schemas.row_decoding import DecodedColumn

RULES = TypeRules(times=True)


def framed(content: bytes, schema_id: int = 7) -> bytes:
    return b"\x00" + schema_id.to_bytes(4, "big") + content


class Decoded(NamedTuple):
    array: Any
    kind: pa.DataType
    bad: int
    first: tuple[int, str] | None

    @property
    def rows(self) -> list[Any]:
        """All values, which Python can have: a timestamp of Arrow can be any number."""
        found: list[Any] = self.array.to_pylist()
        return found


def decode_by_both(program: Program, data: Any, starts: Any, ends: Any) -> tuple[Any, list[Failure]]:
    """Return the compiled kernel's result, after a comparison with the portable one."""
    columns, failures = compiled_avro_decode.decode_avro(program, data, starts, ends)
    others, other_failures = avro_decode.decode_avro(program, data, starts, ends)
    assert failures == other_failures
    for one, other in zip(columns, others, strict=True):
        assert one.length == other.length
        assert (None if one.valid is None else one.valid.tobytes()) == (
            None if other.valid is None else other.valid.tobytes()
        )
        assert one.values.dtype == other.values.dtype
        assert one.values.tobytes() == other.values.tobytes()
        assert one.data.tobytes() == other.data.tobytes()
    return columns, failures


def decode(
    writers: dict[int, Any] | Any, values: list[bytes | None], reader: Any = None, rules: TypeRules = RULES
) -> Decoded:
    """Decode frames by both kernels. `writers` are schemas by their ids, or the only one, of id 7 and without frames."""
    if not (isinstance(writers, dict) and all(isinstance(each, int) for each in writers) and writers):
        writers = {7: writers}
        values = [None if each is None else framed(each) for each in values]
    known: Any = writers

    def schema_of(schema_id: int | str) -> str:
        if schema_id not in known:
            raise UnknownSchema(f"there is no schema {schema_id}")
        return json.dumps(known[schema_id])

    text = json.dumps(next(iter(known.values())) if reader is None else reader)
    decoder = ColumnDecoder(text, schema_of, "value", rules)
    found = _decoded(decoder, pa.array(values, pa.binary()))
    array: Any = found.values
    array.validate(full=True)
    assert array.type == decoder.kind
    return Decoded(array, decoder.kind, found.bad_rows, found.first)


def _decoded(decoder: ColumnDecoder, column: Any) -> DecodedColumn:
    with mock.patch.object(decoded_column, "decode_avro", decode_by_both):
        return decoder.decode(column)
