"""Which twin of the kernel this process uses.

Owns: the choice and the one line about it in the log. Must not know: what the functions do.
"""

from __future__ import annotations

import importlib.util
import logging
from types import ModuleType
from typing import Any

from spark_producer.errors import ConfigError
from spark_producer.kernel import decode, murmur2, portable

VARIABLE = "PYPRODUCER_KERNEL"
FUNCTIONS = (
    "ArrangedRows", "decode_v2", "encode_headers", "encode_v2", "group_rows", "largest_record", "murmur2", "record_sizes",
)  # fmt: skip
"""what both twins have"""

_PORTABLE = (portable, murmur2, decode)
_COMPILED = ("spark_producer.kernel.compiled", "spark_producer.kernel.compiled_decode")
_log = logging.getLogger(__name__)


def load(wanted: str) -> tuple[str, dict[str, Any]]:
    """Name and functions of a twin: `wanted`, or the compiled one if it was built where nothing is wanted.

    Raises:
        ConfigError: no such kernel, or the compiled one is wanted and was not built.
    """
    if wanted not in ("", "portable", "compiled"):
        raise ConfigError(f"{VARIABLE}={wanted!r} is no kernel: set it to portable or compiled, or leave it out")
    built = all(importlib.util.find_spec(name) is not None for name in _COMPILED)
    if wanted == "compiled" and not built:
        raise ConfigError(
            f"{VARIABLE}=compiled, but this installation has no compiled kernel: install a wheel that brings it, or build "
            "with a C compiler (pip install --no-binary pyproducer pyproducer)"
        )
    if wanted == "portable" or not built:
        if not wanted:
            _log.info("the compiled kernel was not built; the portable one serves, at about a quarter of its speed")
        return "portable", _functions(*_PORTABLE)
    return "compiled", _functions(*(importlib.import_module(name) for name in _COMPILED))


def _functions(*modules: ModuleType) -> dict[str, Any]:
    return {name: getattr(module, name) for module in modules for name in FUNCTIONS if hasattr(module, name)}
