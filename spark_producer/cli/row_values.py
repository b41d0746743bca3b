"""The rows of a batch as the keys, values and headers of records."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import pyarrow

from spark_producer.record.rendering import as_json, as_text, objects
from spark_producer.record.rendering.untyped import Column, pa


class RowValues(NamedTuple):
    """A batch whose rows are rendered as `as_records` renders them.

    `first` is the number of its first row in the file, from 0 on; with `keep_nulls` null fields are written into JSON.

    Its methods raise pyarrow.ArrowException for a type or value that JSON cannot express; the message has the column and the row.
    """

    batch: pyarrow.RecordBatch
    first: int
    keep_nulls: bool

    def objects(self) -> Column:
        """Return each row as a JSON object of all columns."""
        names = self.batch.schema.names
        values = [self._rendered(name, as_json) for name in names]
        return objects(names, values, self.batch.num_rows, self.keep_nulls)

    def text(self, column: str) -> Column:
        """Return a column as string or binary."""
        return self._rendered(column, as_text)

    def headers(self, columns: Mapping[str, str]) -> Column:
        """Return the headers of each row. `columns` maps the names of headers to those of columns, in order."""
        rows, count = self.batch.num_rows, len(columns)
        values = [as_binary(self.text(column)) for column in columns.values()]
        in_rows = np.arange(rows * count).reshape(count, rows).T.reshape(-1)
        names = pa.DictionaryArray.from_arrays(
            pa.array(np.tile(np.arange(count, dtype=np.int32), rows)), pa.array(list(columns), pa.string())
        )
        fields = [names.dictionary_decode(), pa.concat_arrays(values).take(pa.array(in_rows))]
        entries = pa.StructArray.from_arrays(fields, ["key", "value"])
        return pa.LargeListArray.from_arrays(pa.array(np.arange(rows + 1) * count), entries)

    def _rendered(self, name: str, render: Callable[[Column, bool], Column]) -> Column:
        cells = self.batch.column(name)
        try:
            return render(cells, self.keep_nulls)
        except pa.ArrowTypeError as error:
            raise pa.ArrowTypeError(f"column {name!r}: {error}") from error
        except (pa.ArrowException, ValueError) as error:
            raise pa.ArrowInvalid(f"{self._location(name, cells, render)}: {error}") from error

    def _location(self, name: str, cells: Column, render: Callable[[Column, bool], Column]) -> str:
        """Return the column, and its first row that cannot be rendered."""
        for at in range(len(cells)):
            try:
                render(cells.slice(at, 1), self.keep_nulls)
            except (pa.ArrowException, ValueError):
                return f"row {self.first + at + 1}, column {name!r}"
        return f"column {name!r}"


def as_binary(column: Column) -> Column:
    """Return a column of strings or bytes as large binary; dictionaries are decoded."""
    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
    return column.cast(pa.large_binary())
