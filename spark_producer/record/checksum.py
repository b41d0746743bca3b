"""CRC-32C (RFC 3720), which covers record batches from their attributes on (Kafka's DefaultRecordBatch).

Owns: where the function comes from. Must not know: what it is the checksum of.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec

__all__ = ["crc32c"]


def _function() -> Callable[..., int]:
    """`crc32c.crc32c`, taken from the package's extension module alone.

    The package's own `__init__` looks up its version and defines a command: importlib.metadata, email, zipfile and argparse
    would be a quarter of what importing the producer costs (`python -m benchmarks.imports`).
    """
    package = find_spec("crc32c")
    places = None if package is None else package.submodule_search_locations
    spec = PathFinder.find_spec("crc32c._crc32c", places)
    if places is None or spec is None or spec.loader is None:  # another layout than that of its versions 2.7 to 2.9
        module = importlib.import_module("crc32c")
    else:
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
    found: Callable[..., int] = module.crc32c
    return found


crc32c = _function()
"""(data, value so far = 0) → CRC-32C"""
