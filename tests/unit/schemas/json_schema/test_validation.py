"""Validation on request, by all rules of a schema: rows that are not valid say which rule, and never show their values."""

from __future__ import annotations

import builtins
import json
from typing import Any

import pyarrow as pa
import pytest

from spark_producer.errors import ConfigError, SchemaError
from spark_producer.schemas.json_schema.column_plan import json_plan
from spark_producer.schemas.json_schema.column_reader import json_schema_reader
from spark_producer.schemas.json_schema.encoding import encode_json
from spark_producer.schemas.json_schema.validation import SchemaValidator
from tests.unit.schemas.json_schema.judging import FRAME, of, read, reasons

pytestmark = pytest.mark.covers("JS3")

SCHEMA: Any = of(
    id={"type": "integer", "minimum": 1}, s={"pattern": "^A", "maxLength": 3, "type": "string"},
    l={"type": "array", "items": {"type": "integer", "multipleOf": 2}},
) | {"required": ["id"], "additionalProperties": False}  # fmt: skip


def test_rows_that_are_not_valid_have_the_rule() -> None:
    found = reasons(
        SCHEMA,
        '{"id":1}',
        '{"id":0}',
        '{"id":1,"s":"secret"}',
        "{}",
        '{"id":1,"l":[2,3]}',
        '{"id":1,"x":2}',
        "x",
        validate=True,
    )
    assert found == [
        None,
        "field 'value.id': it is not valid by minimum 1 of its schema",
        "field 'value.s': it is not valid by pattern \"^A\" of its schema",
        "field 'value': it is not valid by required [\"id\"] of its schema",
        "field 'value.l[]': it is not valid by multipleOf 2 of its schema",
        "field 'value': it is not valid by additionalProperties false of its schema",
        "it is not JSON: Expecting value (character 0)",
    ]
    assert reasons(SCHEMA, '{"id":0}', "{}") == [None, None], "only on request"
    assert read(SCHEMA, ['{"id":1}', '{"id":0}', None], validate=True).values.to_pylist()[1:] == [None, None]


def test_rows_are_validated_before_they_are_written() -> None:
    column: Any = pa.array([{"id": 1}, {"id": 0}, None, {"id": -5}])
    plan = json_plan(json.dumps(SCHEMA), column.type, "value", validate=True)
    found, unfit = encode_json(plan, column)
    assert found is None
    assert [(each.path, each.reason, each.rows.tolist()) for each in unfit] == [
        ("value.id", "it is not valid by minimum 1 of its schema", [1]),
        ("value.id", "it is not valid by minimum 1 of its schema", [3]),
    ]
    good, none = encode_json(plan, column.take(pa.array([0, 2])))
    assert (good is not None, none) == (True, [])


def test_values_are_validated_by_the_schema_that_they_were_written_with() -> None:
    class Writers:
        def text(self, schema_id: int) -> str:
            return json.dumps(SCHEMA) if schema_id == 7 else "{}"

    reader = json_schema_reader("value", "{}", "PERMISSIVE", {}, None, validate=True)._replace(writers=Writers())  # type: ignore[arg-type]
    found = reader.decoder().decode(pa.array([FRAME + b'{"id":0}', b'\0\0\0\0\x08{"id":0}'], pa.binary()))
    assert found.values.to_pylist() == [None, '{"id":0}']  # type: ignore[misc]


def test_schemas_that_are_not_valid_or_lead_elsewhere() -> None:
    with pytest.raises(SchemaError, match=r"it is not a valid JSON Schema: .* \(at \$\.minimum\)"):
        SchemaValidator('{"minimum": "1"}', "it")
    with pytest.raises(SchemaError, match="not a valid JSON Schema"):
        json_schema_reader("value", '{"minimum": "1"}', "FAILFAST", {}, None, validate=True)
    elsewhere = SchemaValidator('{"$ref": "http://127.0.0.1:9/schema.json"}', "it").reason("{}", "value")
    assert elsewhere is not None
    assert elsewhere.startswith("field 'value': its schema cannot be applied: ")
    deep = '{"$ref": "#", "x": ' * 1
    assert SchemaValidator('{"properties": {"a": {"$ref": "#"}}}', "it").reason(deep, "value") is None, "it is not JSON"
    nested = '{"a":' * 900 + "1" + "}" * 900
    assert "nested too deeply" in str(
        SchemaValidator('{"properties": {"a": {"$ref": "#"}}}', "it").reason(nested, "value")
    )


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *arguments: Any, **more: Any) -> Any:
        if name.startswith("jsonschema"):
            raise ImportError("No module named 'jsonschema'")
        return real(name, *arguments, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(
        ConfigError, match=r"json.fail.invalid.schema=true needs jsonschema, .*pyproducer\[jsonschema\]"
    ):
        json_schema_reader("value", "{}", "FAILFAST", {}, None, validate=True)
    json_schema_reader("value", "{}", "FAILFAST", {}, None)
