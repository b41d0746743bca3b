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
_COMPILED = tuple(f"spark_producer.kernel.{name}" for name in ("compiled", "compiled_decode", "compiled_murmur2"))
_REMEDY = "install a wheel that brings it, or build with a C compiler (pip install --no-binary pyproducer pyproducer)"
_log = logging.getLogger(__name__)


def load(wanted: str) -> tuple[str, dict[str, Any]]:
    """Name and functions of a twin: `wanted`, or the compiled one if it is there and can be loaded where nothing is wanted.

    Otherwise a warning says why the slower one serves: one line in each process, as this is called once.

    Raises:
        ConfigError: no such kernel, or the compiled one is wanted and was not built or cannot be loaded.
    """
    if wanted not in ("", "portable", "compiled"):
        raise ConfigError(f"{VARIABLE}={wanted!r} is no kernel: set it to portable or compiled, or leave it out")
    if wanted == "portable":
        return "portable", _functions(*_PORTABLE)
    compiled, problem = _load_compiled()
    if not problem:
        return "compiled", _functions(*compiled)
    if wanted == "compiled":
        raise ConfigError(f"{VARIABLE}=compiled, but {problem}: {_REMEDY}")
    _log.warning(
        "%s; the portable kernel serves, at about a quarter of the speed: %s, or set %s=portable if that is meant",
        problem, _REMEDY, VARIABLE,
    )  # fmt: skip
    return "portable", _functions(*_PORTABLE)


def _load_compiled() -> tuple[list[ModuleType], str]:
    """The compiled kernel's modules, or why there are none: not built, or built for another machine, Python or C library."""
    if any(importlib.util.find_spec(name) is None for name in _COMPILED):
        return [], "this installation has no compiled kernel"
    try:
        return [importlib.import_module(name) for name in _COMPILED], ""
    except ImportError as error:
        return [], f"the compiled kernel cannot be loaded ({error})"


def _functions(*modules: ModuleType) -> dict[str, Any]:
    return {name: getattr(module, name) for module in modules for name in FUNCTIONS if hasattr(module, name)}
