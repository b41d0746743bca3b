"""Decodes a column of JSON in Confluent's wire format. Values name their fields, so those of all ids are read in one way."""

from __future__ import annotations

from typing import cast

import numpy as np
import pyarrow as pa

from spark_producer.errors import SchemaError
from spark_producer.kernel.arrays import ArrowArray, BoolArray, BytesArray, Int64Array
from spark_producer.schemas.frames import Frames, frames_of
from spark_producer.schemas.header_ids import HeaderIds
from spark_producer.schemas.json_schema.column_types import JsonType
from spark_producer.schemas.json_schema.parsing import Texts, parse_rows
from spark_producer.schemas.json_schema.validation import SchemaValidator
from spark_producer.schemas.references import UnknownSchema
from spark_producer.schemas.registry import SchemaKey
from spark_producer.schemas.row_decoding import DecodedColumn, in_order
from spark_producer.schemas.texts import arrow_type_name
from spark_producer.schemas.writer_schemas import WriterSchemas


class JsonDecoder:
    """Decodes the values of a column into one type.

    Args:
        node: The column.
        writers: The schemas by which values of another format are found; None takes all values for JSON.
        schema: The reader's schema, by which values are validated if `writers` is None.
        validate: Whether values must be valid by the schema that they were written with.
    """

    def __init__(self, node: JsonType, writers: WriterSchemas | None, schema: str, validate: bool) -> None:
        self._node = node
        self._writers = writers
        self._schema = schema
        self._validate = validate
        self._validators: dict[SchemaKey, SchemaValidator | str | None] = {}

    @property
    def kind(self) -> pa.DataType:
        """The Arrow type of the decoded column."""
        return self._node.kind

    def decode(self, column: ArrowArray, header: HeaderIds | None = None) -> DecodedColumn:
        """Return a binary column decoded; `header` has the ids that the headers of rows hold. A null stays null.

        Raises:
            SchemaError: the column is not binary. RegistryError: the registry cannot be reached, or refuses.
            RecordError: the decoded values have more than 2 GiB. ConfigError: the validator is not installed.
        """
        if not (pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type)):
            raise SchemaError(
                f"column '{self._node.path}' is {arrow_type_name(column.type)}, but JSON in Confluent's wire format is binary"
            )
        frames = frames_of(cast("BytesArray", column), header)
        bad = list(frames.bad)
        chosen: BoolArray = np.ones(len(frames.rows), np.bool_)
        for number in np.unique(frames.ids).tolist():
            of_id = np.flatnonzero(frames.ids == number)
            for rows, reason in self._invalid(frames.key(number), frames, of_id):
                chosen[rows] = False
                bad.append((frames.rows[rows], reason))
        rows = np.flatnonzero(chosen)
        found = parse_rows(self._node, Texts(frames.data, frames.starts[rows], frames.ends[rows]))
        bad += [(frames.rows[rows[numbers]], reason) for numbers, reason in found.bad]
        positions = [frames.rows[rows[numbers]] for numbers in found.positions]
        return in_order(self.kind, len(column), found.parts, positions, bad)

    def _invalid(self, key: SchemaKey, frames: Frames, rows: Int64Array) -> list[tuple[Int64Array, str]]:
        """Return the rows of an id that are not valid, with the reasons."""
        validator = self._validator(key)
        if validator is None:
            return []
        if isinstance(validator, str):
            return [(rows, validator)]
        found = []
        for row in rows.tolist():
            text = frames.data[frames.starts[row] : frames.ends[row]].tobytes().decode("utf-8", "replace")
            reason = validator.reason(text, self._node.path)
            if reason is not None:
                found.append((np.array([row], np.int64), reason))
        return found

    def _validator(self, key: SchemaKey) -> SchemaValidator | str | None:
        """Return the validator of an id, None if its values are not validated, or the reason why none can be decoded."""
        if key in self._validators:
            return self._validators[key]
        try:
            text = self._schema if self._writers is None else self._writers.text(key)
            found = SchemaValidator(text, f"schema {key}") if self._validate else None
        except UnknownSchema as error:  # it may be registered later
            return str(error)
        except SchemaError as error:
            self._validators[key] = str(error)
            return str(error)
        self._validators[key] = found
        return found
