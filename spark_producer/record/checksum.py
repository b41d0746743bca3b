"""CRC-32C (RFC 3720), which covers record batches from their attributes to the end (Kafka's DefaultRecordBatch)."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec, module_from_spec

__all__ = ["crc32c"]


def load(find: Callable[..., ModuleSpec | None] = PathFinder.find_spec) -> Callable[..., int]:
    """Return `crc32c.crc32c`, loaded from the package's extension module alone.

    The package's own `__init__` looks up its version and defines a command. For that it imports importlib.metadata, email,
    zipfile and argparse, which would be a quarter of the cost of importing the producer (`python -m benchmarks.imports`).
    `find` searches for that module; if it is not found, the whole package is imported.
    """
    package = find_spec("crc32c")
    locations = None if package is None else package.submodule_search_locations
    spec = find("crc32c._crc32c", locations)
    if locations is None or spec is None or spec.loader is None:  # the layout differs from that of versions 2.7 to 2.9
        module = importlib.import_module("crc32c")
    else:
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
    found: Callable[..., int] = module.crc32c
    return found


crc32c = load()
"""Map (data, value so far = 0) to the CRC-32C."""
