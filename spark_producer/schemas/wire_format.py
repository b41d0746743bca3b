"""Confluent's wire format: a zero, four bytes of the schema's id, for Protobuf the path of the message, and the payload.

Or the payload alone: then a header of the record has a one and the schema's GUID, and the path.
"""

from __future__ import annotations

import uuid

import pyarrow as pa

from spark_producer.errors import ConfigError
from spark_producer.kernel.arrays import ArrowArray, BytesArray, one_value
from spark_producer.kernel.varint import encode_varint

MAGIC = b"\x00"
ID_BYTES = 4
GUID_MAGIC = b"\x01"
GUID_BYTES = 16


def header_name(column: str) -> str:
    """Return the name of the header that has the schema of the column `value` or `key`."""
    return f"__{column}_schema_id"


def prefix_of(schema_id: int, indexes: tuple[int, ...] = ()) -> bytes:
    """Return the prefix of the payload. `indexes` is the path of a Protobuf message; other formats have none.

    The path is encoded as its length and its steps, in zigzag varints; that of a file's first message is one zero byte.
    """
    return MAGIC + schema_id.to_bytes(ID_BYTES, "big") + _path(indexes)


def header_of(guid: str, indexes: tuple[int, ...] = ()) -> bytes:
    """Return the value of the header that has the GUID of a schema; `indexes` as for `prefix_of`."""
    return GUID_MAGIC + uuid.UUID(guid).bytes + _path(indexes)


def _path(indexes: tuple[int, ...]) -> bytes:
    if indexes == (0,):
        return b"\x00"
    return b"".join(map(encode_varint, (len(indexes), *indexes))) if indexes else b""


def parse_indexes(name: str, text: str | None) -> tuple[int, ...]:
    """Return the path of an option's text, `2,0` or `[2, 0]`; an empty one for None.

    Raises:
        ConfigError: the text is not a list of non-negative whole numbers.
    """
    if text is None:
        return ()
    parts = [part.strip() for part in text.strip().removeprefix("[").removesuffix("]").split(",")]
    if not all(part.isascii() and part.isdecimal() and int(part) < 1 << 31 for part in parts):
        raise ConfigError(f"{name} must be whole numbers with commas between them, such as 0 or 2,0, not {text!r}")
    return tuple(map(int, parts))


def framed(column: ArrowArray, prefix: bytes) -> BytesArray:
    """Return a column of strings or bytes with `prefix` before each value; null stays null."""
    import pyarrow.compute as pc  # it takes 35 ms, so it is loaded only where it is used

    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
    kind = column.type
    large = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind) or column.nbytes >= 1 << 30
    target = pa.large_binary() if large else pa.binary()
    parts = (one_value(prefix, target), column.cast(target), one_value(b"", target))
    found: BytesArray = pc.binary_join_element_wise(*parts, null_handling="emit_null")  # type: ignore[call-overload]  # as arrays.join
    return found


def split_frame(content: bytes) -> tuple[int, bytes] | None:
    """Return the schema's id and the payload, or None if these bytes are not in the wire format."""
    if len(content) <= ID_BYTES or content[:1] != MAGIC:
        return None
    return int.from_bytes(content[1 : 1 + ID_BYTES], "big"), content[1 + ID_BYTES :]
