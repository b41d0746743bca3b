"""Names for the types of Protobuf's descriptors, whose package has no types."""

from __future__ import annotations

from typing import Any, TypeAlias

FileDescriptor: TypeAlias = Any
Descriptor: TypeAlias = Any
"""The descriptor of a message."""
FieldDescriptor: TypeAlias = Any
