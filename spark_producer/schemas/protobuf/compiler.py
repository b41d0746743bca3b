"""Compiles Protobuf schemas, by Google's protoc in a process of its own, and finds messages in the result.

Only this module imports `grpc_tools` and `google.protobuf`, the extra `[protobuf]`.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import importlib.util
import json
import re
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from spark_producer.common.escape import for_log
from spark_producer.errors import ConfigError, CorruptRecord, SchemaError
from spark_producer.schemas.protobuf.descriptors import Descriptor, FileDescriptor
from spark_producer.schemas.texts import list_names

INSTALL = "pip install 'pyproducer[protobuf]', or what it brings, grpcio-tools"
"""The command that installs the extra, or its package where pyproducer itself is not installed by pip."""

SECONDS = 60.0
"""Maximum duration of a compilation in seconds; it takes a fifth of one."""

MAX_SCHEMA_BYTES = 16 << 20
"""Maximum bytes of a schema and the schemas it refers to."""

_OWN = "pyproducer-own-schema.proto"
"""The name of the file of the schema itself, which no schema imports."""

_SET = "pyproducer-own-schema.set"
"""The name of the file with descriptors that were compiled already."""


_LOGGED = re.compile(r"[IWE]\d{4} |WARNING: All log messages")
"""Lines that protoc logs beside its errors."""


class ProtobufSchema(NamedTuple):
    """A schema as a registry stores it.

    Attributes:
        text: The text of a `.proto` file, or the base64 of a serialised `FileDescriptorProto`.
        references: The schemas that it refers to, directly or not, by the names under which they are imported.
    """

    text: str
    references: Mapping[str, str] = {}


def parse_registered(text: str) -> ProtobufSchema:
    """Return a schema as `Registry` returns it, which is JSON."""
    found = json.loads(text)
    return ProtobufSchema(found["schema"], found["references"])


def compiled(schema: ProtobufSchema, what: str) -> FileDescriptor:
    """Return the compiled schema; `what` names it in messages.

    Raises:
        ConfigError: the extra is not installed. SchemaError: the schema is not valid, or lacks a file that it imports.
    """
    return file_of(descriptor_set(schema, what), what)


def descriptor_set(schema: ProtobufSchema, what: str) -> bytes:
    """Return the descriptors of the schema and of all that it imports, for `file_of`.

    Raises:
        ConfigError, SchemaError: as `compiled`.
    """
    if sum(map(len, (schema.text, *schema.references.values()))) > MAX_SCHEMA_BYTES:
        raise SchemaError(f"{what} is too large: the maximum is {MAX_SCHEMA_BYTES >> 20} MiB with what it refers to")
    with _invalid(what):
        return _by_protoc(schema, what)


def file_of(descriptors: bytes, what: str) -> FileDescriptor:
    """Return the compiled schema of descriptors; a task needs Protobuf's library for it, and not the compiler.

    Raises:
        ConfigError: the library is not installed. SchemaError: the descriptors are not valid.
    """
    with _invalid(what):
        from google.protobuf import descriptor_pb2, descriptor_pool

        pool: Any = descriptor_pool.DescriptorPool()
        for file in descriptor_pb2.FileDescriptorSet.FromString(descriptors).file:
            pool.Add(file)
        own: FileDescriptor = pool.FindFileByName(_OWN)
        return own


@contextlib.contextmanager
def _invalid(what: str) -> Iterator[None]:
    """Raise the errors of Protobuf's library as ours."""
    try:
        from google.protobuf import message
    except ImportError as error:
        raise ConfigError(f"Protobuf's library is not installed: {error}. Run {INSTALL}") from None
    try:
        yield
    except (TypeError, KeyError, message.DecodeError, UnicodeError) as error:
        raise SchemaError(f"{what} is not a valid Protobuf schema: {for_log(str(error))}") from None


def _by_protoc(schema: ProtobufSchema, what: str) -> bytes:
    """Return the set of descriptors of a schema and all that it imports."""
    from google.protobuf import descriptor_pb2

    ready = descriptor_pb2.FileDescriptorSet()
    with tempfile.TemporaryDirectory(prefix="pyproducer-") as name:
        folder = Path(name)
        for file, text in {**schema.references, _OWN: schema.text}.items():
            content = _serialised(text)
            if content is None:
                path = folder / _inner_path(file, what)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
            else:
                ready.file.append(descriptor_pb2.FileDescriptorProto.FromString(content))
                ready.file[-1].name = file
        (folder / _SET).write_bytes(ready.SerializeToString())
        return _run(folder, what, has_set=bool(ready.file))


def _run(folder: Path, what: str, *, has_set: bool) -> bytes:
    if importlib.util.find_spec("grpc_tools") is None:
        raise ConfigError(f"the compiler of Protobuf schemas is not installed. Run {INSTALL}")
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{folder}", "--include_imports"]
    command += [f"--descriptor_set_out={folder / 'out'}", _OWN]
    if has_set:
        command.insert(-1, f"--descriptor_set_in={folder / _SET}")
    try:
        done = subprocess.run(command, capture_output=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise SchemaError(f"{what} cannot be compiled within {SECONDS:g} s") from None
    if done.returncode:
        text = done.stderr.decode("utf-8", "replace").replace(f"{folder}/", "").replace(f"{_OWN}:", "line ")
        lines = [line for line in text.splitlines() if line and not _LOGGED.match(line)]
        raise SchemaError(f"{what} is not a valid Protobuf schema: {for_log('; '.join(lines))}")
    return (folder / "out").read_bytes()


def _inner_path(name: str, what: str) -> PurePosixPath:
    """Return the path of a file within the folder."""
    path = PurePosixPath(name)
    if not path.parts or path.is_absolute() or ".." in path.parts or chr(0) in name:
        raise SchemaError(f"{what} refers to a file with an invalid name: '{for_log(name)}'")
    return path


def _serialised(text: str) -> bytes | None:
    """Return the bytes of a descriptor in base64, or None if it is the text of a file, which has braces or quotation marks."""
    try:
        return base64.b64decode(text, validate=True) or None
    except (binascii.Error, ValueError):
        return None


def message_of(file: FileDescriptor, name: str | None, what: str) -> Descriptor:
    """Return a message of a compiled schema: the one of this name, with or without its package, or the first one.

    Raises:
        SchemaError: there is no such message.
    """
    messages = [message for _, message in _messages(file) if not message.GetOptions().map_entry]
    if not messages:
        raise SchemaError(f"{what} has no message")
    if name is None:
        return messages[0]
    for message in messages:
        if name in (message.full_name, message.full_name.removeprefix(f"{file.package}.")):
            return message
    names = list_names(message.full_name for message in messages)
    raise SchemaError(f"{what} has no message '{for_log(name)}'. It has: {names}")


def message_indexes(message: Descriptor) -> tuple[int, ...]:
    """Return the path of a message in the wire format. As in Confluent's serialisers for Java, entries of maps do not count."""
    parent = message.containing_type
    if parent is None:
        names = [each.full_name for each in message.file.message_types_by_name.values()]
        return (names.index(message.full_name),)
    names = [each.full_name for each in parent.nested_types if not each.GetOptions().map_entry]
    return (*message_indexes(parent), names.index(message.full_name))


MessageNames = Mapping[tuple[int, ...], tuple[str, ...]]
"""The full names of messages by their paths in the wire format. A path may have two: among the messages within a message,
Confluent's serialisers for Java do not count the entries of maps, those for Python and Go do."""


def message_names(file: FileDescriptor) -> MessageNames:
    """Return the names of the messages of a compiled schema."""
    found: dict[tuple[int, ...], tuple[str, ...]] = {}
    for paths, message in _messages(file):
        if not message.GetOptions().map_entry:
            for path in paths:
                found[path] = (*found.get(path, ()), message.full_name)
    return found


def _messages(file: FileDescriptor) -> Iterator[tuple[set[tuple[int, ...]], Descriptor]]:
    """Return all messages, those within others too, with their paths: all are counted, or all but the entries of maps.

    A client counts alike at every level, so that a message has two paths at most.
    """
    left: deque[tuple[tuple[int, ...], tuple[int, ...], Descriptor]]
    left = deque(((index,), (index,), each) for index, each in enumerate(file.message_types_by_name.values()))
    while left:
        whole, without_entries, message = left.popleft()
        yield {whole, without_entries}, message
        entries = 0
        for index, each in enumerate(message.nested_types):
            left.append(((*whole, index), (*without_entries, index - entries), each))
            entries += each.GetOptions().map_entry


def message_at(file: FileDescriptor, path: tuple[int, ...]) -> Descriptor:
    """Return the message with a path in the wire format.

    Raises:
        SchemaError: there is none.
    """
    for paths, message in _messages(file):
        if path in paths and not message.GetOptions().map_entry:
            return message
    raise SchemaError(f"it has no message with the indexes {list(path)}")


def message_json(message: Descriptor, content: bytes) -> str:
    """Return an encoded message as Protobuf's JSON on one line, with the names of the schema.

    Raises:
        CorruptRecord: it is not this message, or has values without JSON, such as an unknown type in an Any.
    """
    from google.protobuf import json_format, message_factory
    from google.protobuf.message import DecodeError

    descriptor: Any = message
    try:
        found = message_factory.GetMessageClass(descriptor).FromString(content)
        text: str = json_format.MessageToJson(
            found,
            indent=None,
            preserving_proto_field_name=True,
            ensure_ascii=False,
            descriptor_pool=descriptor.file.pool,
        )
        return text
    except (DecodeError, ValueError, TypeError, json_format.Error) as error:
        raise CorruptRecord(f"it is not the message {message.full_name}: {for_log(str(error))}") from None
