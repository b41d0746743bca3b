"""Columns of Protobuf decoded by both kernels, and the values that Google's library finds in the same bytes.

Owns: that the kernels agree, that the arrays are valid, and what a message of the library is in Spark. Must not know: which value
a test expects.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Mapping
from typing import Any, NamedTuple
from unittest import mock

import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import FieldDescriptorProto

from spark_producer.kernel import compiled_protobuf_decode, protobuf_decode
from spark_producer.schemas.protobuf import decoded_column
from spark_producer.schemas.protobuf.decoded_column import ProtobufDecoder
from spark_producer.schemas.protobuf.message_names import WriterMessages
from spark_producer.schemas.protobuf.message_types import program_of

HEAD = b"\x00\x00\x00\x00\x07\x00"
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
WRAPPERS = {"DoubleValue", "FloatValue", "Int64Value", "UInt64Value", "Int32Value", "UInt32Value", "BoolValue"}
WRAPPERS |= {"StringValue", "BytesValue"}


class Decoded(NamedTuple):
    array: Any
    rows: list[Any]
    bad: int
    first: tuple[int, str] | None


def decode_by_both(program: Any, data: Any, starts: Any, ends: Any) -> Any:
    """Return the compiled kernel's result, after a comparison with the portable one."""
    columns, failures = compiled_protobuf_decode.decode_protobuf(program, data, starts, ends)
    others, other_failures = protobuf_decode.decode_protobuf(program, data, starts, ends)
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
    message: Any, values: list[bytes | None], *, recursion: int = 0, writers: WriterMessages | None = None
) -> Decoded:
    """Decode messages by both kernels, with the frame of a file's first message before each; with `writers` they have frames."""
    program = program_of(message, "value", recursion)
    if writers is None:
        values = [None if each is None else HEAD + each for each in values]
    decoder = ProtobufDecoder(program, message.full_name, writers)
    with mock.patch.object(decoded_column, "decode_protobuf", decode_by_both):
        found = decoder.decode(pa.array(values, pa.binary()))
    array: Any = found.values
    array.validate(full=True)
    assert array.type == decoder.kind
    return Decoded(array, [comparable(each) for each in array.to_pylist()], found.bad_rows, found.first)


def comparable(value: Any) -> Any:
    """A value that compares as it should: a NaN equals itself, and the entries of a map have no order."""
    if isinstance(value, dict):
        return {name: comparable(each) for name, each in value.items()}
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        return sorted(((key, comparable(each)) for key, each in value), key=repr)
    if isinstance(value, list):
        return [comparable(each) for each in value]
    if isinstance(value, float):
        return repr(value)
    return int(value) if isinstance(value, decimal.Decimal) else value


def expected(message: Any) -> Any:
    """What a message of Google's library is in Spark."""
    kind = message.DESCRIPTOR.full_name.removeprefix("google.protobuf.")
    if kind == "Timestamp":
        return EPOCH + datetime.timedelta(microseconds=message.seconds * 1_000_000 + message.nanos // 1000)
    if kind == "Duration":
        micros = abs(message.nanos) // 1000 * (-1 if message.nanos < 0 else 1)
        return datetime.timedelta(microseconds=message.seconds * 1_000_000 + micros)
    if kind in WRAPPERS:
        return comparable(message.value)
    return {field.name: _of_field(message, field) for field in message.DESCRIPTOR.fields}


def _of_field(message: Any, field: Any) -> Any:
    value = getattr(message, field.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        inner = field.message_type.fields_by_name["value"]
        return sorted(((key, _one(inner, value[key])) for key in value), key=repr)
    if field.is_repeated:
        return [_one(field, each) for each in value]
    if field.has_presence and not message.HasField(field.name):
        given = field.has_default_value and field.containing_oneof is None and not field.is_required
        return _one(field, value) if given else None
    return _one(field, value)


def _one(field: Any, value: Any) -> Any:
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return str(value) if known is None else known.name
    return expected(value) if field.message_type is not None else comparable(value)


def message_class(file: Any, name: str = "M0") -> Any:
    """The class of a message of a file that may import Protobuf's own."""
    pool = descriptor_pool.DescriptorPool()
    for own in ("timestamp", "duration", "wrappers", "struct"):
        pool.Add(descriptor_pb2.FileDescriptorProto.FromString(own_file(f"google/protobuf/{own}.proto")))
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


def own_file(name: str) -> bytes:
    from google.protobuf import duration_pb2, struct_pb2, timestamp_pb2, wrappers_pb2

    files = (timestamp_pb2, duration_pb2, wrappers_pb2, struct_pb2)
    found: bytes = next(each.DESCRIPTOR.serialized_pb for each in files if each.DESCRIPTOR.name == name)
    return found


NUMBERS: Mapping[str, int] = {
    name.removeprefix("TYPE_").lower(): number for name, number in FieldDescriptorProto.Type.items()
}
"""The types of fields by the names that they have in `.proto` files."""
