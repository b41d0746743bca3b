"""Parsed JSON as the columns of a schema: dates, times, bytes and narrow numbers are made of texts and wide ones."""

from __future__ import annotations

import binascii
import contextlib
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from spark_producer.kernel.arrays import (
    ArrowArray,
    BoolArray,
    ByteArray,
    Int64Array,
    buffer_of,
    is_valid,
    numbers,
    view_of,
)
from spark_producer.kernel.binary_slices import binary_slices
from spark_producer.kernel.column_views import BinaryColumn
from spark_producer.kernel.decoded_avro import MismatchedValues, RowsOf, beyond
from spark_producer.schemas.json_schema.column_types import JsonForm, JsonType

_TEXTS = {JsonForm.DATE, JsonForm.TIME, JsonForm.LOCAL_TIME, JsonForm.BASE64, JsonForm.TEXT, JsonForm.STRING}

_MOMENT = r"^(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(\.\d{1,6})?\d*"
"""Date and time of RFC 3339, whose digits beyond microseconds are left out: the time is rounded down."""

_CANONICAL = {
    JsonForm.DATE: r"^\d{4}-\d\d-\d\d$",
    JsonForm.TIME: r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d{1,6})?(?:Z|[+-]\d\d:\d\d)$",
    JsonForm.LOCAL_TIME: r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d{1,6})?$",
}
"""The texts that Arrow reads as they are."""

_FORMS: dict[JsonForm, tuple[str, str, str]] = {
    JsonForm.DATE: (r"^(\d{4}-\d\d-\d\d)$", r"\1", "it is not a date (RFC 3339)"),
    JsonForm.TIME: (
        _MOMENT + r"(?:[Zz]|([+-]\d\d:\d\d))$",
        r"\1T\2\3\4",
        "it is not a date and time with an offset (RFC 3339)",
    ),
    JsonForm.LOCAL_TIME: (_MOMENT + "$", r"\1T\2\3", "it is not a date and time without an offset (RFC 3339)"),
}
"""By form: the pattern of its texts, what Arrow reads of them, and the reason why others cannot be decoded."""


class Finished(NamedTuple):
    """A column, and the values that it does not hold, in whose place it has null."""

    values: ArrowArray
    mismatches: list[MismatchedValues]


def parsed_type(node: JsonType) -> pa.DataType:
    """Return the Arrow type in which the values of a column are parsed."""
    if node.form in _TEXTS:
        return pa.string()
    if node.form is JsonForm.INTEGER:
        return pa.int64()
    if node.form is JsonForm.NUMBER:
        return pa.float64()
    kinds = [parsed_type(child) for child in node.children]
    if node.form is JsonForm.OBJECT:
        return pa.struct([pa.field(name, kind) for name, kind in zip(node.names, kinds, strict=True)])
    if node.form is JsonForm.ARRAY:
        return pa.list_(pa.field("element", kinds[0]))
    if node.form is JsonForm.MAP:
        return pa.map_(pa.string(), kinds[0])
    return node.kind


def finished(node: JsonType, parsed: ArrowArray) -> Finished:
    """Return a column of parsed values in its own type."""
    finisher = _Finisher()
    return Finished(finisher.finish(node, parsed, lambda rows: rows), finisher.mismatches)


class _Finisher:
    def __init__(self) -> None:
        self.mismatches: list[MismatchedValues] = []

    def finish(self, node: JsonType, parsed: Any, rows: RowsOf) -> ArrowArray:
        if node.form is JsonForm.OBJECT:
            parts = parsed.flatten() if parsed.null_count else [parsed.field(at) for at in range(len(node.children))]
            fields = [self.finish(child, part, rows) for child, part in zip(node.children, parts, strict=True)]
            return pa.Array.from_buffers(node.kind, len(parsed), parsed.buffers()[:1], children=fields)
        if node.form in (JsonForm.ARRAY, JsonForm.MAP):
            return self._items(node, parsed, rows)
        if node.form is JsonForm.INTEGER:
            return self._integers(node, parsed, rows)
        if node.form is JsonForm.NUMBER:
            return self._floats(node, parsed, rows)
        if node.form is JsonForm.DECIMAL:
            return self._decimals(node, parsed, rows)
        if node.form in _FORMS:
            return self._times(node, parsed, rows)
        if node.form is JsonForm.BASE64:
            return self._bytes(node, parsed, rows)
        found: ArrowArray = parsed
        return found

    def _mismatch(self, bad: BoolArray, node: JsonType, reason: str, rows: RowsOf) -> None:
        self.mismatches.append(MismatchedValues(np.unique(rows(np.flatnonzero(bad))), node.path, reason))

    def _items(self, node: JsonType, parsed: Any, rows: RowsOf) -> ArrowArray:
        offsets = (
            np.frombuffer(memoryview(parsed.buffers()[1]), np.int32, len(parsed) + 1)
            if len(parsed)
            else np.zeros(1, np.int32)
        )

        def inner(positions: Int64Array) -> Int64Array:
            return rows(np.searchsorted(offsets, positions, side="right") - 1)

        child = node.children[0]
        if node.form is JsonForm.ARRAY:
            items = self.finish(child, parsed.values, inner)
        else:
            entry: Any = node.kind
            kind = pa.struct([entry.key_field, entry.item_field])
            pair = [parsed.keys, self.finish(child, parsed.items, inner)]
            items = pa.Array.from_buffers(kind, len(parsed.keys), [None], children=pair)
        return pa.Array.from_buffers(node.kind, len(parsed), parsed.buffers()[:2], children=[items])

    def _integers(self, node: JsonType, parsed: Any, rows: RowsOf) -> ArrowArray:
        if node.kind == pa.int64():
            found: ArrowArray = parsed
            return found
        values = numbers(parsed, 0)
        narrow = values.astype(node.kind.to_pandas_dtype())
        bad = narrow != values
        if bad.any():
            self._mismatch(bad, node, f"it does not fit into {node.kind.bit_width} bits", rows)
        return _with_nulls(node.kind, parsed, narrow)

    def _floats(self, node: JsonType, parsed: Any, rows: RowsOf) -> ArrowArray:
        values = numbers(parsed, 0)
        if node.kind == pa.float32():
            with np.errstate(over="ignore"):
                values = values.astype(np.float32)
        bad = ~np.isfinite(values)
        if bad.any():
            self._mismatch(bad, node, f"it is out of the range of {node.kind}", rows)
        return _with_nulls(node.kind, parsed, values)

    def _decimals(self, node: JsonType, parsed: Any, rows: RowsOf) -> ArrowArray:
        """Check the digits: Arrow's reader counts those of the text, not those that its scale adds."""
        kind: Any = node.kind
        found: ArrowArray = parsed
        data = parsed.buffers()[1]
        if kind.scale and data is not None and len(parsed):
            whole = view_of(data, np.dtype(np.uint8), 16 * len(parsed), 16 * parsed.offset).reshape(-1, 16)
            bad = beyond(whole, kind.precision) & is_valid(parsed)
            if bad.any():
                self._mismatch(bad, node, f"decimal({kind.precision}, {kind.scale}) does not hold it", rows)
        return found

    def _times(self, node: JsonType, parsed: Any, rows: RowsOf) -> ArrowArray:
        import pyarrow.compute as pc  # loaded only if used

        if _all_match(parsed, _CANONICAL[node.form]):
            with contextlib.suppress(pa.ArrowInvalid):  # such as the thirtieth of February
                found: ArrowArray = parsed.cast(node.kind)
                return found
        pattern, form, reason = _FORMS[node.form]
        fit = pc.match_substring_regex(parsed, pattern=pattern)
        bad = numbers_of(fit) == 0
        texts = pc.replace_substring_regex(parsed, pattern=pattern, replacement=form)
        if node.form is JsonForm.TIME:
            zulu = pc.match_substring_regex(texts, pattern=r"[+-]\d\d:\d\d$")
            texts = pc.if_else(zulu, texts, pc.binary_join_element_wise(texts, "Z", ""))
        bad &= is_valid(parsed)
        if bad.any():
            texts = _nulled(texts, bad)
        try:
            found = texts.cast(node.kind)
        except pa.ArrowInvalid:
            bad |= _not_castable(texts, node.kind)
            found = _nulled(texts, bad).cast(node.kind)
        if bad.any():
            self._mismatch(bad, node, reason, rows)
        return found

    def _bytes(self, node: JsonType, parsed: Any, rows: RowsOf) -> ArrowArray:
        found, bad = decoded_base64(parsed)
        if bad.any():
            self._mismatch(bad, node, "it is not base64", rows)
        return found


def _all_match(texts: Any, pattern: str) -> bool:
    import pyarrow.compute as pc

    return bool(pc.all(pc.match_substring_regex(texts, pattern=pattern), min_count=0).as_py())


def numbers_of(flags: Any) -> Any:
    """Return a boolean Arrow array as 0 and 1; null is 0."""
    import pyarrow.compute as pc

    return numbers(pc.fill_null(flags, False).cast(pa.int8()))


def _with_nulls(kind: pa.DataType, parsed: Any, values: Any) -> ArrowArray:
    """Return values with the nulls of the parsed column."""
    bits = buffer_of(np.packbits(is_valid(parsed), bitorder="little")) if parsed.null_count else None
    return pa.Array.from_buffers(kind, len(parsed), [bits, buffer_of(np.ascontiguousarray(values))])


def _nulled(column: Any, bad: BoolArray) -> Any:
    """Return a column with null in place of the bad values."""
    return column.take(pa.array(np.arange(len(column)), pa.int64(), mask=bad))


def _not_castable(texts: Any, kind: pa.DataType) -> BoolArray:
    """Return which texts Arrow does not read. Each different one is tried: that happens only to columns with a bad text."""
    encoded = texts.dictionary_encode()
    failed = []
    for text in encoded.dictionary:
        try:
            text.cast(kind)
            failed.append(False)
        except pa.ArrowInvalid:
            failed.append(True)
    codes = numbers(encoded.indices, -1)
    found: BoolArray = np.array([*failed, False], np.bool_)[codes]
    return found


def decoded_base64(column: Any) -> tuple[ArrowArray, BoolArray]:
    """Return texts in base64 (RFC 4648, 4) as bytes, and which of them are not base64 and null therefore.

    All texts are decoded in one call, in which each padding stands for zeros that are cut off then.
    """
    view = BinaryColumn(column)
    data = view.data
    starts, lengths = view.offsets[:-1].astype(np.int64), view.lengths
    ends = starts + lengths
    last: Any = np.zeros(len(column), np.int64)
    for back in (1, 2):
        has = (lengths >= 4) & (last == back - 1)
        last[has] += data[ends[has] - back] == _PAD
    wrong = np.concatenate(([0], np.cumsum(~_ALPHABET[data])))
    bad: BoolArray = (lengths % 4 != 0) | (wrong[ends - last] != wrong[starts])
    whole = np.where(bad, 0, lengths)
    text = binary_slices(data, starts, whole) if len(data) else column.cast(pa.binary())
    joined = BinaryColumn(text)
    content: ByteArray = joined.data[joined.offsets[0] : joined.offsets[-1]].copy()
    content[content == _PAD] = ord("A")
    plain = np.frombuffer(binascii.a2b_base64(content.tobytes()), np.uint8)
    valid = is_valid(column) & ~bad
    sizes = np.where(valid, whole // 4 * 3 - last, -1)
    return binary_slices(
        plain, (joined.offsets[:-1] - joined.offsets[0]).astype(np.int64) // 4 * 3, sizes
    ), bad & is_valid(column)


_PAD = ord("=")
_ALPHABET = np.zeros(256, np.bool_)
_ALPHABET[list(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")] = True
