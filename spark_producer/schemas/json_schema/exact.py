"""JSON texts as values, one by one and exactly: numbers keep their digits, and each value is held against the form of its column.

It decides about rows that the fast way (`parsing.py`) does not read, and reads forms that Arrow's reader lacks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation, localcontext
from typing import Any, NoReturn

import pyarrow as pa

from spark_producer.schemas.json_schema.column_types import JsonForm, JsonType

_MAX_DIGITS = 400
"""Maximum characters of a number that becomes an integer or a decimal; 38 digits with an exponent have fewer."""

_DIGITS = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
"""The numbers in strings that Arrow's reader takes, too."""


class UnfitValue(Exception):
    """A text is not JSON, or a value does not have the form of its column; the message is the reason."""


class Number(str):
    """The text of a number."""

    __slots__ = ()


def parse_text(text: str) -> Any:
    """Return the value of a JSON text, in which numbers are `Number`. The last one of equal names counts, as in Python's `json`.

    Raises:
        UnfitValue: the text is not JSON.
    """
    if text.startswith("\ufeff"):
        raise UnfitValue("it is not JSON: it begins with a byte order mark")
    try:
        return _DECODER.decode(text)
    except json.JSONDecodeError as error:
        what = "there is more after its value" if error.msg == "Extra data" else error.msg
        raise UnfitValue(f"it is not JSON: {what} (character {error.pos})") from None
    except RecursionError:
        raise UnfitValue("it is nested too deeply") from None


def _refuse_constant(name: str) -> NoReturn:
    raise UnfitValue(f"it is not JSON: it has {name}")


_DECODER = json.JSONDecoder(parse_int=Number, parse_float=Number, parse_constant=_refuse_constant)


def value_of(node: JsonType, found: Any) -> Any:
    """Return a value for the column that `parsed_type` describes.

    Raises:
        UnfitValue: it does not have the form; the message has the field.
    """
    if found is None:
        return None
    try:
        return _READERS[node.form](node, found)
    except UnfitValue:
        raise
    except UnicodeEncodeError:
        raise UnfitValue(f"field '{node.path}': it has half of a surrogate pair, which UTF-8 does not have") from None


def text_of(found: Any) -> str:
    """Return a value as JSON without spaces, numbers with their digits."""
    if isinstance(found, Number):
        return str(found)
    if isinstance(found, dict):
        return f"{{{','.join([f'{_quoted(name)}:{text_of(each)}' for name, each in found.items()])}}}"
    if isinstance(found, list):
        return f"[{','.join([text_of(each) for each in found])}]"
    return _quoted(found)


def _quoted(found: Any) -> str:
    text = json.dumps(found, ensure_ascii=False)
    text.encode()  # half of a surrogate pair is an error
    return text


def _other(node: JsonType, found: Any) -> UnfitValue:
    return UnfitValue(f"field '{node.path}': it is {_name(found)}, but its schema says {node.form.value}")


def _name(found: Any) -> str:
    if isinstance(found, Number):
        return "a number"
    return {dict: "an object", list: "an array", bool: "a boolean", str: "a string"}[type(found)]


def _boolean(node: JsonType, found: Any) -> Any:
    if isinstance(found, bool):
        return found
    raise _other(node, found)


def _integer(node: JsonType, found: Any) -> Any:
    """Return an integer; `1.0` and `1e2` are integers, too (JSON Schema, 4.2.3)."""
    if not isinstance(found, Number):
        raise _other(node, found)
    number = _decimal(node, found)
    if number != number.to_integral_value():
        raise UnfitValue(f"field '{node.path}': it has a fraction, but its schema says an integer")
    whole = int(number)
    if not -1 << 63 <= whole < 1 << 63:
        raise UnfitValue(f"field '{node.path}': it does not fit into 64 bits")
    return whole


def _decimal(node: JsonType, text: str) -> Decimal:
    """Return a number exactly, if it could fit into 38 digits."""
    try:
        if len(text) <= _MAX_DIGITS and _DIGITS.fullmatch(text):
            number = Decimal(text)
            exponent = number.as_tuple().exponent
            if number == 0 or (isinstance(exponent, int) and number.adjusted() < 60 and exponent > -_MAX_DIGITS):
                return number
    except InvalidOperation:
        pass
    raise UnfitValue(f"field '{node.path}': it has more digits than its column")


def _number(node: JsonType, found: Any) -> Any:
    if isinstance(found, Number):
        return float(found)
    raise _other(node, found)


def _fixed_point(node: JsonType, found: Any) -> Any:
    """Return a decimal of the column's scale; some writers put decimals into strings."""
    if not isinstance(found, str):
        raise _other(node, found)
    number, kind = _decimal(node, found), node.kind
    assert isinstance(kind, pa.Decimal128Type)
    with localcontext(prec=1000):
        scaled = number.scaleb(kind.scale)
        if scaled != scaled.to_integral_value() or abs(scaled) >= Decimal(10) ** kind.precision:
            raise UnfitValue(f"field '{node.path}': it does not fit into decimal({kind.precision}, {kind.scale})")
        return number.quantize(Decimal(1).scaleb(-kind.scale))


def _string(node: JsonType, found: Any) -> Any:
    if isinstance(found, str) and not isinstance(found, Number):
        found.encode()
        return found
    raise _other(node, found)


def _text(_: JsonType, found: Any) -> Any:
    return text_of(found)


def _object(node: JsonType, found: Any) -> Any:
    if not isinstance(found, dict):
        raise _other(node, found)
    return {name: value_of(child, found.get(name)) for name, child in zip(node.names, node.children, strict=True)}


def _map(node: JsonType, found: Any) -> Any:
    if not isinstance(found, dict):
        raise _other(node, found)
    for name in found:
        name.encode()
    return [(name, value_of(node.children[0], each)) for name, each in found.items()]


def _array(node: JsonType, found: Any) -> Any:
    if not isinstance(found, list):
        raise _other(node, found)
    return [value_of(node.children[0], each) for each in found]


_READERS: dict[JsonForm, Callable[[JsonType, Any], Any]] = {
    JsonForm.BOOLEAN: _boolean,
    JsonForm.INTEGER: _integer,
    JsonForm.NUMBER: _number,
    JsonForm.DECIMAL: _fixed_point,
    JsonForm.STRING: _string,
    JsonForm.DATE: _string,
    JsonForm.TIME: _string,
    JsonForm.LOCAL_TIME: _string,
    JsonForm.BASE64: _string,
    JsonForm.TEXT: _text,
    JsonForm.OBJECT: _object,
    JsonForm.MAP: _map,
    JsonForm.ARRAY: _array,
}
