"""DataFrames as records: functions that return the sink's columns of any DataFrame, as expressions that Spark itself runs.

No Python runs in executors for it, and it works in Spark Connect. PySpark is imported only when a function is called.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias

from spark_producer.errors import ConfigError, SchemaError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

    Expression: TypeAlias = str | Column
    """A column's name, SQL such as `"'flights'"` or `"upper(carrier)"`, or a `Column`."""

ALL = "*"
FORMATS = ("json", "struct")
SPEC_VERSION = "1.0"
"""The version of the CloudEvents specification."""

_NAME = re.compile(r"[^\W\d]\w*")
_RFC_3339 = "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"
_JSON_TIMES = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXXXX", "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"
}  # fmt: skip
"""Six digits of a second, of which Spark's default format writes three; and the seconds of an offset, such as Berlin's before
1893, since without them it would be another time."""

_WITHOUT_NAMES = ("BinaryType", "StructType", "ArrayType", "CalendarIntervalType")
"""The types that map keys can have in Spark and not in JSON."""


def as_records(
    df: DataFrame,
    *,
    key: Expression | Sequence[Expression] | None = None,
    value: Expression | Sequence[Expression] = ALL,
    headers: Mapping[str, Expression] | Expression | None = None,
    topic: Expression | None = None,
    partition: Expression | None = None,
    timestamp: Expression | None = None,
    value_format: Literal["json", "struct"] = "json",
    value_without_key: bool = False,
    keep_nulls: bool = False,
    tombstone: Expression | None = None,
) -> DataFrame:
    """Return `df` with the columns that the sink writes: `value`, and a column for each other argument that is given.

    Each part is a column's name, SQL, or a `Column`; a column's name has precedence over SQL, and case does not matter.
    JSON is that of Spark's `to_json`, but with microseconds in its timestamps; `pyproducer write` writes the same bytes.

    * `key`: one column is cast to string, unless it is binary; several columns, or a struct, array or map, become JSON.
    * `value`: `"*"` is all columns. Several columns, a struct, array or map become JSON; one other column is cast to string,
      unless it is binary. With `value_format="struct"` several columns stay a struct, for another function to encode.
    * `headers`: name → expression, each rendered like a key of one column; or a column that has all headers already.
    * `topic` and `partition` are cast to string and int; a partition is a whole number, or a string of one.
    * `timestamp` is a timestamp, or milliseconds since 1970.
    * `value_without_key`: leave out of `"*"` the columns that `key` names, as Flink's `value.fields-include=EXCEPT_KEY` does.
    * `keep_nulls`: write null fields into the JSON; Spark leaves them out.
    * `tombstone`: a condition; where it is true the value is null.

    Raises:
        SchemaError: a column does not exist (the message has the nearest name); several columns, or fields, have one name; JSON
            does not allow the keys of a map; or the partition is not a whole number.
        ConfigError: the arguments contradict each other.
        pyspark.errors.AnalysisException: Spark cannot parse SQL (in Spark Connect when the frame is used).
    """
    _check(key, value, value_format, value_without_key)
    fields, one_value = _value(df, key, value, value_without_key)
    parts: dict[str, Column] = {"value": fields}
    if key is not None:
        parts["key"] = _one_or_struct(df, key)
    if headers is not None and not (isinstance(headers, Mapping) and not headers):
        parts["headers"] = _headers(df, headers)
    for name, given in {"topic": topic, "partition": partition, "timestamp": timestamp, "tombstone": tombstone}.items():
        if given is not None:
            parts[name] = _column(df, given)
    raw = df.select(*(column.alias(name) for name, column in parts.items()))
    as_struct = value_format == "struct" and not one_value
    names = list(headers) if isinstance(headers, Mapping) else None
    return _converted(raw, header_names=names, as_struct=as_struct, keep_nulls=keep_nulls)


def as_cloud_events(
    df: DataFrame,
    *,
    id: Expression,  # noqa: A002 - the attribute's name
    source: Expression,
    type: Expression,  # noqa: A002 - the attribute's name
    subject: Expression | None = None,
    time: Expression | None = None,
    data: Expression | Sequence[Expression] = ALL,
    content_type: str = "application/json",
    extensions: Mapping[str, Expression] | None = None,
    key: Expression | None = None,
    topic: Expression | None = None,
) -> DataFrame:
    """Return `df` as CloudEvents 1.0 in binary mode: attributes in the headers, data in the value, `partitionkey` in the key.

    Expressions are those of `as_records`, so a fixed text is SQL: `source="'/flights'"`. `time` is a timestamp; it becomes
    `ce_time`, in RFC 3339, and the record's time as well. An optional attribute that is null in a row is left out of that row.
    If `data` is not JSON, set `content_type`. Source: the CloudEvents specification 1.0.2, Kafka protocol binding.

    Raises:
        SchemaError, AnalysisException: as `as_records`; or an extension has an illegal name.
        pyspark.errors.SparkRuntimeException: a row has no id, source or type (raised when Spark processes the row).
    """
    from pyspark.sql import functions

    needed = {
        name: _needed(name, _column(df, given)) for name, given in (("id", id), ("source", source), ("type", type))
    }
    more: dict[str, Expression] = {} if subject is None else {"subject": subject}
    if time is not None:
        more["time"] = functions.date_format(_column(df, time), _RFC_3339)
    for name, given in (extensions or {}).items():
        if not re.fullmatch("[a-z0-9]{1,20}", name) or name in needed or name in ("subject", "time", "specversion"):
            raise SchemaError(
                f"{name!r} is not a legal name of a CloudEvents extension. Use 1 to 20 characters of a-z and 0-9, and no name of "
                "an attribute"
            )
        more[name] = given
    headers: dict[str, Expression] = {
        "ce_specversion": functions.lit(SPEC_VERSION),
        "content-type": functions.lit(content_type),
    }
    headers |= {f"ce_{name}": given for name, given in (needed | more).items()}
    frame = as_records(df, key=key, value=data, headers=headers, topic=topic, timestamp=time)
    return frame.withColumn("headers", functions.filter("headers", lambda header: header["value"].isNotNull()))


def _needed(name: str, column: Column) -> Column:
    """Return a text column that raises an error in rows where it is null or empty."""
    from pyspark.sql import functions

    text = column.cast("string")
    return functions.when(text != "", text).otherwise(
        functions.raise_error(functions.lit(f"a CloudEvent needs {name!r}: it is null or empty"))
    )


def _check(key: object, value: object, value_format: str, value_without_key: bool) -> None:
    if value_format not in FORMATS:
        raise ConfigError(f"value_format must be 'json' or 'struct', not {value_format!r}")
    if value_without_key and (value != ALL if isinstance(value, str) else True):
        raise ConfigError('value_without_key leaves columns out of value="*", but value is given. Drop one of them')
    named = [key] if isinstance(key, str) else key if isinstance(key, Sequence) else []
    if value_without_key and not (named and all(isinstance(one, str) for one in named)):
        raise ConfigError("value_without_key needs a key that names columns. Set key, or drop it")


def _value(
    df: DataFrame,
    key: Expression | Sequence[Expression] | None,
    value: Expression | Sequence[Expression],
    without: bool,
) -> tuple[Column, bool]:
    """Return the column of the value, and whether it is a single column, not a struct of several."""
    from pyspark.sql import functions

    if not (isinstance(value, str) and value == ALL):
        return _one_or_struct(df, value), not _is_several(value)
    if not without:
        return functions.struct(ALL), False
    given = [key] if isinstance(key, str) else list(key or []) if isinstance(key, Sequence) else []
    keys = {_known(df, one) for one in given if isinstance(one, str)}
    if None in keys:
        raise ConfigError("value_without_key needs a key that names columns, not SQL. Name columns, or drop it")
    left = [name for name in df.columns if name not in keys]
    if not left:
        raise ConfigError("value_without_key leaves no column for the value: all are in the key. Drop it")
    return functions.struct(*map(_quoted, left)), False


def _is_several(given: Expression | Sequence[Expression]) -> bool:
    return isinstance(given, Sequence) and not isinstance(given, str) and len(given) != 1


def _one_or_struct(df: DataFrame, given: Expression | Sequence[Expression]) -> Column:
    """Return one expression unchanged, and several as a struct."""
    from pyspark.sql import functions

    if isinstance(given, str) or not isinstance(given, Sequence):
        return _column(df, given)
    if not given:
        raise ConfigError("an empty list of columns was given. Name at least one, or leave the argument out")
    return _column(df, given[0]) if len(given) == 1 else functions.struct(*(_column(df, one) for one in given))


def _headers(df: DataFrame, headers: Mapping[str, Expression] | Expression) -> Column:
    """Return a struct with a field for each header, named by its number; or the given column with all headers."""
    from pyspark.sql import functions

    if not isinstance(headers, Mapping):
        return _column(df, headers)
    # Named by numbers, since Spark does not distinguish `Trace` and `trace`.
    return functions.struct(*(_column(df, given).alias(f"_{at}") for at, given in enumerate(headers.values())))


def _column(df: DataFrame, given: Expression) -> Column:
    """Return a column for a name, SQL or a column.

    Raises:
        SchemaError: a plain name is not a column.
    """
    from pyspark.sql import functions

    if not isinstance(given, str):
        return given
    known = _known(df, given)
    if known is not None:
        if df.columns.count(known) > 1:
            raise SchemaError(f"the DataFrame has several columns {known!r}. Give each a different name")
        return _quoted(known)
    if _NAME.fullmatch(given):
        near = difflib.get_close_matches(given.lower(), [name.lower() for name in df.columns], n=1, cutoff=0.6)
        hint = next((f" Did you mean {name!r}?" for name in df.columns if name.lower() in near), "")
        raise SchemaError(
            f"the DataFrame has no column {given!r}.{hint} Its columns are {', '.join(df.columns)}. Quote a fixed text "
            f"for SQL: \"'{given}'\""
        )
    return functions.expr(given)


def _known(df: DataFrame, name: str) -> str | None:
    """Return the column with this name, preferably in the same letter case; None if there is none."""
    same = [column for column in df.columns if column.lower() == name.lower()]
    return name if name in same else same[0] if same else None


def _quoted(name: str) -> Column:
    from pyspark.sql import functions

    escaped = name.replace("`", "``")
    return functions.col(f"`{escaped}`")


def _converted(raw: DataFrame, *, header_names: list[str] | None, as_struct: bool, keep_nulls: bool) -> DataFrame:
    """Return the parts in the types of the sink. Spark merges this projection with the previous one."""
    from pyspark.sql import functions

    schema = raw.schema
    types = {field.name: field.dataType for field in schema.fields}
    _refuse_doubled("the value", types["value"])
    value = functions.col("value") if as_struct else _as_bytes(functions.col("value"), types["value"], keep_nulls)
    if "tombstone" in types:
        value = functions.when(functions.col("tombstone"), functions.lit(None)).otherwise(value)
    found = {"value": value}
    if "key" in types:
        found["key"] = _as_bytes(functions.col("key"), types["key"], keep_nulls)
    if "headers" in types:
        headers = functions.col("headers")
        found["headers"] = (
            headers if header_names is None else _header_array(header_names, types["headers"], keep_nulls)
        )
    if "partition" in types:
        _check_partition(types["partition"])
    casts = {"topic": "string", "partition": "int"}
    found |= {name: functions.col(name).cast(kind) for name, kind in casts.items() if name in types}
    if "timestamp" in types:
        found["timestamp"] = functions.col("timestamp")
    order = ("key", "value", "headers", "topic", "partition", "timestamp")
    return raw.select(*(found[name].alias(name) for name in order if name in found))


def _check_partition(kind: DataType) -> None:
    """Raise SchemaError for a type that a cast to int would truncate, such as a double."""
    from pyspark.sql.types import DecimalType, IntegralType, NullType, StringType

    is_whole = isinstance(kind, DecimalType) and kind.scale == 0
    if not (is_whole or isinstance(kind, IntegralType | StringType | NullType)):
        raise SchemaError(
            f"the partition has type {kind.simpleString()}, but partitions are whole numbers. Use cast(… as int) to truncate it"
        )


def _as_bytes(column: Column, kind: DataType, keep_nulls: bool) -> Column:
    """Return a key, a value or a header as string or binary."""
    from pyspark.sql import functions
    from pyspark.sql.types import ArrayType, BinaryType, MapType, StringType, StructType, VariantType

    if isinstance(kind, StructType | ArrayType | MapType | VariantType):
        _refuse_doubled("one JSON object", kind)
        _refuse_keys(kind)
        return functions.to_json(column, {"ignoreNullFields": str(not keep_nulls).lower(), **_JSON_TIMES})
    return column if isinstance(kind, BinaryType | StringType) else column.cast("string")


def _refuse_doubled(what: str, kind: DataType) -> None:
    """Raise SchemaError if two fields of a struct have one name, as after a join: JSON readers keep only one of them."""
    from pyspark.sql.types import StructType

    for part in _parts(kind):
        names = part.names if isinstance(part, StructType) else []
        doubled = next((name for name in names if names.count(name) > 1), None)
        if doubled is not None:
            raise SchemaError(f"{what} has several columns {doubled!r}. Give each a different name")


def _refuse_keys(kind: DataType) -> None:
    """Raise SchemaError for map keys that Spark writes as addresses in memory, which differ in each process."""
    from pyspark.sql.types import MapType

    for part in _parts(kind):
        if isinstance(part, MapType) and type(part.keyType).__name__ in _WITHOUT_NAMES:
            raise SchemaError(f"a map whose keys are {part.keyType.simpleString()} has no JSON. Make its keys strings")


def _parts(kind: DataType) -> Iterator[DataType]:
    """Yield a type and all types within it."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    yield kind
    inner: list[DataType] = [field.dataType for field in kind.fields] if isinstance(kind, StructType) else []
    inner += [kind.keyType, kind.valueType] if isinstance(kind, MapType) else []
    inner += [kind.elementType] if isinstance(kind, ArrayType) else []
    for part in inner:
        yield from _parts(part)


def _header_array(names: list[str], kind: DataType, keep_nulls: bool) -> Column:
    """Return an array of headers from a struct of them. Its values have one type: binary, if one of them is."""
    from pyspark.sql import functions
    from pyspark.sql.types import BinaryType

    struct: StructType = kind  # type: ignore[assignment]  # made by `_headers`
    binary = any(isinstance(field.dataType, BinaryType) for field in struct.fields)
    entries = []
    for name, field in zip(names, struct.fields, strict=True):
        value = _as_bytes(functions.col("headers").getField(field.name), field.dataType, keep_nulls)
        value = value.cast("binary") if binary else value
        entries.append(functions.struct(functions.lit(name).alias("key"), value.alias("value")))
    return functions.array(*entries)
