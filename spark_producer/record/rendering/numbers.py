"""Renders numbers as Java does, and so Spark: `Double.toString`, `BigDecimal.toString` and `toPlainString`."""

from __future__ import annotations

import numpy as np

from spark_producer.record.rendering.strings import TEXT, joined
from spark_producer.record.rendering.untyped import Column, Kind, pa, pc

_PARTS = r"^(?P<sign>-?)(?P<whole>\d+)\.?(?P<part>\d*)(?:e\+?(?P<power>-?\d+))?$"
"""The parts of a number in Arrow's text."""

_FEW_BITS = {pa.float32(): 1e-43, pa.float64(): 1e-321}
"""The bound below which a number has so few bits that one digit may identify it, although two digits are nearer to it: Java
writes at least two."""


def digits(column: Column) -> Column:
    """Return integers as their digits, and booleans as `true` and `false`."""
    return column.cast(TEXT)


def floats(column: Column) -> Column:
    """Return floats and doubles as `Float.toString` and `Double.toString` do from Java 19 on.

    These are the fewest digits that identify the number, plain from 10^-3 up to 10^7 and with an exponent otherwise. Java 17
    writes a digit more for some numbers (JDK-4511638).
    """
    if pa.types.is_float16(column.type):
        column = column.cast(pa.float32())
    text = column.cast(TEXT)
    size = pc.abs(column.cast(pa.float64()))
    plain = pc.or_(pc.and_(pc.greater_equal(size, 1e-3), pc.less(size, 1e7)), pc.equal(size, 0.0))
    if not pc.all(pc.match_substring(text, "."), min_count=0).as_py():
        text = pc.if_else(pc.match_substring(text, "."), text, joined(text, ".0"))
    if pc.all(plain, min_count=0).as_py():
        return text
    other = pc.fill_null(pc.invert(plain), False)
    return pc.replace_with_mask(text, other, _scientific(column.filter(other)))


def json_floats(column: Column) -> Column:
    """Return floats as JSON numbers; NaN and infinities, which JSON lacks, as JSON strings."""
    text = floats(column)
    finite = pc.is_finite(column if not pa.types.is_float16(column.type) else column.cast(pa.float32()))
    return text if pc.all(finite, min_count=0).as_py() else pc.if_else(finite, text, joined('"', text, '"'))


def _scientific(column: Column) -> Column:
    """Return finite numbers with an exponent, and the names of NaN and the infinities."""
    parts = pc.extract_regex(column.cast(TEXT), pattern=_PARTS)
    sign, whole, part, power = (pc.struct_field(parts, at) for at in range(4))
    every = joined(whole, part)
    significant = pc.utf8_ltrim(every, characters="0")
    zeros = pc.subtract(pc.utf8_length(every), pc.utf8_length(significant))
    power = pc.if_else(pc.equal(power, ""), "0", power).cast(pa.int64())
    power = pc.subtract(pc.add(power, pc.subtract(pc.utf8_length(whole), 1)), zeros)
    rest = pc.utf8_rtrim(pc.utf8_slice_codeunits(significant, 1), characters="0")
    rest = pc.if_else(pc.equal(rest, ""), pa.scalar("0", TEXT), rest)
    text = joined(sign, pc.utf8_slice_codeunits(significant, 0, 1), ".", rest, "E", power.cast(TEXT))
    text = _with_few_bits(column, text)
    names = pc.if_else(pc.greater(column, 0), pa.scalar("Infinity", TEXT), pa.scalar("-Infinity", TEXT))
    names = pc.if_else(pc.is_nan(column), pa.scalar("NaN", TEXT), names)
    return pc.if_else(pc.is_finite(column), text, names)


def _with_few_bits(column: Column, text: Column) -> Column:
    """Return the texts; the smallest numbers get a second digit other than 0 where that is nearer to their value."""
    small = pc.less(pc.abs(column), _FEW_BITS[column.type])
    if not pc.any(small).as_py():
        return text
    kind = np.float32 if column.type == pa.float32() else np.float64
    nearer = []
    for value, short in zip(column.filter(small).to_pylist(), pc.filter(text, small).to_pylist(), strict=True):
        two = f"{value:.1E}".replace("E-0", "E-")
        nearer.append(two if ".0E" in short and kind(two) == kind(value) else short)
    return pc.replace_with_mask(text, small, pa.array(nearer, TEXT))


def decimals(column: Column) -> Column:
    """Return decimals as text with all digits of their scale, as `BigDecimal.toString` does: below 10^-6 with an exponent."""
    if column.type.scale < 0:  # Spark has no negative scale: write all digits of the integer
        column = column.cast(pa.decimal256(76, 0))
    return column.cast(TEXT)


def plain_decimals(column: Column) -> Column:
    """Return decimals as text with all digits of their scale and no exponent, as `BigDecimal.toPlainString` does."""
    text = decimals(column)
    small = pc.match_substring(text, "E")
    if not pc.any(small).as_py():
        return text
    kind = column.type
    whole = column.filter(small).view(_unscaled(kind)).cast(TEXT)
    sign = pc.if_else(pc.starts_with(whole, "-"), pa.scalar("-0.", TEXT), pa.scalar("0.", TEXT))
    padded = pc.utf8_lpad(pc.utf8_ltrim(whole, characters="-"), width=kind.scale, padding="0")
    return pc.replace_with_mask(text, pc.fill_null(small, False), joined(sign, padded))


def _unscaled(kind: Kind) -> Kind:
    """Return the decimal type with the same precision and scale 0."""
    makers = {32: pa.decimal32, 64: pa.decimal64, 128: pa.decimal128, 256: pa.decimal256}
    return makers[kind.bit_width](kind.precision, 0)
