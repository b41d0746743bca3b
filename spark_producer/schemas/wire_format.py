"""Confluent's frame around encoded bytes: a zero, four bytes of the schema's id, and for Protobuf the path of the message."""

from __future__ import annotations

import pyarrow as pa

from spark_producer.errors import ConfigError
from spark_producer.kernel.arrays import ArrowArray, BytesArray, one_value
from spark_producer.kernel.varint import encode_varint

MAGIC = b"\x00"
ID_BYTES = 4


def prefix_of(schema_id: int, indexes: tuple[int, ...] = ()) -> bytes:
    """Return what stands before the payload. `indexes` is the path of a Protobuf message; nothing else has one.

    The path is the number of its steps and the steps, as zigzag varints; that of a file's first message is one zero byte.
    """
    frame = MAGIC + schema_id.to_bytes(ID_BYTES, "big")
    if not indexes:
        return frame
    if indexes == (0,):
        return frame + b"\x00"
    return frame + b"".join(map(encode_varint, (len(indexes), *indexes)))


def parse_indexes(name: str, text: str | None) -> tuple[int, ...]:
    """Return the path that the text of an option, `2,0` or `[2, 0]`, stands for; nothing for None.

    Raises:
        ConfigError: It is not whole numbers from 0 on with commas between them.
    """
    if text is None:
        return ()
    parts = [part.strip() for part in text.strip().removeprefix("[").removesuffix("]").split(",")]
    if not all(part.isascii() and part.isdecimal() and int(part) < 1 << 31 for part in parts):
        raise ConfigError(f"{name} must be whole numbers with commas between them, such as 0 or 2,0, not {text!r}")
    return tuple(map(int, parts))


def framed(column: ArrowArray, prefix: bytes) -> BytesArray:
    """Return a column of strings or bytes with `prefix` before each value; null stays null."""
    import pyarrow.compute as pc  # 35 ms of a worker, which only those who ask for frames pay for

    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
    kind = column.type
    large = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind) or column.nbytes >= 1 << 30
    target = pa.large_binary() if large else pa.binary()
    parts = (one_value(prefix, target), column.cast(target), one_value(b"", target))
    found: BytesArray = pc.binary_join_element_wise(*parts, null_handling="emit_null")  # type: ignore[call-overload]  # as arrays.join
    return found


def split_frame(content: bytes) -> tuple[int, bytes] | None:
    """Return the schema's id and the payload behind it, or None if these bytes have no frame."""
    if len(content) <= ID_BYTES or content[:1] != MAGIC:
        return None
    return int.from_bytes(content[1 : 1 + ID_BYTES], "big"), content[1 + ID_BYTES :]
