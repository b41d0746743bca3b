"""What the pickles of tasks and of their reports are made of: every class with its fields, by the sources of the package.

    python -m tests.upgrade.task_shape    # writes task_format.txt, once TASK_FORMAT has been raised

Owns: the list. Must not know: how Spark pickles.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from spark_producer.datasource.task_format import TASK_FORMAT

ROOT = Path(__file__).resolve().parents[2]
LIST = Path(__file__).with_name("task_format.txt")
DATASOURCE = "spark_producer.datasource"
ROOTS = (
    f"{DATASOURCE}.source.PyProducerDataSource",
    f"{DATASOURCE}.follow._ReportQueue",
    f"{DATASOURCE}.write.writers.BatchWriter",
    f"{DATASOURCE}.write.writers.StreamWriter",
    f"{DATASOURCE}.write.driver.commit.TaskReport",
    f"{DATASOURCE}.read.readers.BatchReader",
    f"{DATASOURCE}.read.stream_readers.LimitedStreamReader",
    f"{DATASOURCE}.read.stream_readers.UnlimitedStreamReader",
    f"{DATASOURCE}.read.task_ranges.TopicRangesPartition",
    # what implements a protocol: `Reader`, and `TextPlan`
    "spark_producer.schemas.column_reader.ColumnReader",
    "spark_producer.schemas.json_schema.column_reader.JsonSchemaReader",
    "spark_producer.schemas.protobuf.column_reader.ProtobufReader",
    "spark_producer.schemas.json_schema.encoding.JsonPlan",
)
"""What is pickled, and what its annotations do not name."""
DRIVER_ONLY = {f"{DATASOURCE}.read.driver.stream_offsets.StreamOffsets"}
"""What `__getstate__` leaves out."""


class Module(NamedTuple):
    """A module's classes, the names that it gives to types, and where the names are from that it imports."""

    classes: dict[str, ast.ClassDef]
    types: dict[str, ast.expr]
    imported: dict[str, tuple[str, str]]


@cache
def module_of(name: str) -> Module | None:
    """Return a module of the package, read from its source; None if no module has this name."""
    place = ROOT.joinpath(*name.split("."))
    path = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    if not name.startswith("spark_producer") or not path.exists():
        return None
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = Module({}, {}, {})
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            found.imported.update({each.asname or each.name: (node.module, each.name) for each in node.names})
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            found.classes[node.name] = node
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            found.types[node.target.id] = node.value  # a type alias, or a constant that no annotation names
    return found


def resolved(module: str, name: str) -> tuple[str, ast.ClassDef | ast.expr] | None:
    """Return the module of a class or alias, and its source, by a name that a module uses; None if it is not the package's."""
    found = module_of(module)
    if found is None:
        return None
    if name in found.classes:
        return module, found.classes[name]
    if name in found.types:
        return module, found.types[name]
    return resolved(*found.imported[name]) if name in found.imported else None


def fields_of(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    """Yield the fields of a class with their types: annotated ones, the values of an enumeration, and what methods set."""
    enumeration = any("Enum" in ast.unparse(base) or "Flag" in ast.unparse(base) for base in node.bases)
    for each in node.body:
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
            yield each.target.id, ast.unparse(each.annotation)
        elif enumeration and isinstance(each, ast.Assign):
            yield ast.unparse(each.targets[0]), ast.unparse(each.value)
    for method in node.body:
        if isinstance(method, ast.FunctionDef):
            yield from _set_fields(method)


def _set_fields(method: ast.FunctionDef) -> Iterator[tuple[str, str]]:
    """Yield the attributes that a method sets, with their types."""
    for each in ast.walk(method):
        if isinstance(each, ast.Assign):
            targets, kind = each.targets, _given(method, each)
        elif isinstance(each, ast.AnnAssign):
            targets, kind = [each.target], ast.unparse(each.annotation)
        else:
            continue
        for target in targets:
            if isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self":
                yield target.attr, kind


def _given(method: ast.FunctionDef, assigned: ast.Assign) -> str:
    """Return the type of the argument that a method assigns, or the class that it calls; nothing for other values."""
    value = assigned.value
    if isinstance(value, ast.Call):
        return ast.unparse(value.func)
    arguments = [*method.args.args, *method.args.kwonlyargs]
    types = {each.arg: ast.unparse(each.annotation) for each in arguments if each.annotation is not None}
    return types.get(value.id, "") if isinstance(value, ast.Name) else ""


def shape() -> list[str]:
    """Return a line for each class that a pickle can have: its name, its bases, and its fields with their types."""
    waiting: list[tuple[str, str]] = []
    for root in ROOTS:
        module, _, name = root.rpartition(".")
        assert resolved(module, name) is not None, f"there is no {root}"
        waiting.append((module, name))
    lines: dict[str, str] = {}
    seen: set[tuple[str, str]] = set()
    while waiting:
        user, name = waiting.pop()
        found = resolved(user, name)
        if found is None or (user, name) in seen:
            continue
        seen.add((user, name))
        module, node = found
        if isinstance(node, ast.ClassDef):
            full = f"{module}.{node.name}"
            if full in DRIVER_ONLY:
                continue
            fields: dict[str, str] = {}
            for field, kind in fields_of(node):
                fields.setdefault(field, kind)
            bases = [ast.unparse(base) for base in node.bases]
            # in the order of the source, which counts in a named tuple
            described = ", ".join(f"{field}: {kind}" if kind else field for field, kind in fields.items())
            lines[full] = f"{full}({', '.join(bases)}): {described}"
            texts = [*bases, *fields.values()]
        else:
            texts = [ast.unparse(node)]
        waiting += [(module, each) for text in texts for each in re.findall(r"[A-Za-z_]\w*", text)]
    return [lines[name] for name in sorted(lines)]


def main() -> int:
    """Write the list. The number must be another one than that of the list if the list changes."""
    found = shape()
    number, *kept = LIST.read_text(encoding="utf-8").splitlines() if LIST.exists() else ["0"]
    if found != kept and int(number) == TASK_FORMAT:
        print(f"what tasks are made of has changed: raise TASK_FORMAT, which is {TASK_FORMAT}", file=sys.stderr)
        return 1
    LIST.write_text("\n".join([str(TASK_FORMAT), *found]) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
