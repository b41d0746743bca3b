"""Chooses the compiled or the portable kernel, loads its functions, and logs the choice."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from spark_producer.common.escape import escaping_logger
from spark_producer.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

VARIABLE = "PYPRODUCER_KERNEL"
_PACKAGE = "spark_producer.kernel"


class Twins(NamedTuple):
    """Names of functions that both kernels have, and the modules of each kernel that define them."""

    functions: tuple[str, ...]
    portable: tuple[str, ...]
    compiled: tuple[str, ...]


AT_IMPORT = Twins(
    (
        "ArrangedRows", "SingleRecord", "encode_headers", "encode_v2", "group_rows", "largest_record", "murmur2", "murmur2_one",
        "record_sizes",
    ),
    (f"{_PACKAGE}.portable", f"{_PACKAGE}.portable_murmur2", f"{_PACKAGE}.single_record"),
    (f"{_PACKAGE}.compiled", f"{_PACKAGE}.compiled_murmur2", f"{_PACKAGE}.compiled_single"),
)  # fmt: skip
"""What every writer uses."""
ON_DEMAND = Twins(
    ("decode_avro", "decode_protobuf", "decode_v2", "encode_avro", "encode_protobuf"),
    (
        f"{_PACKAGE}.avro",
        f"{_PACKAGE}.avro_decode",
        f"{_PACKAGE}.decode",
        f"{_PACKAGE}.protobuf_decode",
        f"{_PACKAGE}.protobuf_encode",
    ),
    (
        f"{_PACKAGE}.compiled_avro",
        f"{_PACKAGE}.compiled_avro_decode",
        f"{_PACKAGE}.compiled_decode",
        f"{_PACKAGE}.compiled_protobuf",
        f"{_PACKAGE}.compiled_protobuf_decode",
    ),
)
"""What only reads and columns of Avro and Protobuf use. It is loaded at its first use: new Python workers start all the time."""
_BUILD = (
    "install the package with a C compiler at hand; in a checkout, `pip install --verbose .` shows why a build failed"
)
_UNBUILT = "no compiled module"
_log = escaping_logger(__name__)


class LoadedKernel(NamedTuple):
    """The kernel in use: its name and functions.

    `problem` is the reason why the compiled kernel is not in use, unless the portable one was chosen; `advice` is what to do.
    """

    name: str
    functions: dict[str, Any]
    problem: str
    advice: str = _BUILD

    def describe(self) -> str:
        """Return `compiled kernel`, or `portable kernel: ` and the problem."""
        return f"{self.name} kernel{': ' * bool(self.problem)}{self.problem}"


def load(wanted: str, twins: Twins = AT_IMPORT) -> LoadedKernel:
    """Return the kernel `wanted`. If that is empty: the compiled one if it was built and can be loaded, else the portable one.

    Args:
        wanted: `portable`, `compiled` or nothing.
        twins: The functions to load.

    Raises:
        ConfigError: There is no such kernel, or the compiled one is wanted and was not built or cannot be loaded.
    """
    if wanted not in ("", "portable", "compiled"):
        raise ConfigError(f"{VARIABLE}={wanted!r} is not a kernel. Set it to portable or compiled, or leave it out")
    if wanted == "portable":
        return LoadedKernel("portable", _functions(twins, twins.portable), "")
    functions, problem = _load_compiled(twins)
    if not problem:
        return LoadedKernel("compiled", functions, "")
    advice = _BUILD
    if problem == _UNBUILT:
        problem, advice = _explain_unbuilt()
    if wanted == "compiled":
        raise ConfigError(f"{VARIABLE}=compiled cannot be used: there is {problem}. What to do: {advice}")
    return LoadedKernel("portable", _functions(twins, twins.portable), problem, advice)


def _explain_unbuilt() -> tuple[str, str]:
    """Return the reason why there is no compiled module, and what to do: a checkout hides an install that has one, or none was
    built.
    """
    from pathlib import Path  # only here: a worker with the compiled kernel does without it

    own = Path(__file__).parent.parent
    installed = find_compiled_install(sys.path, own) if (own.parent / "pyproject.toml").is_file() else None
    if installed is None:
        return _UNBUILT, _BUILD
    problem = f"{_UNBUILT} in {own}, whose sources hide the package that is installed in {installed}"
    return problem, "start Python and Spark in another folder than the checkout"


def find_compiled_install(search_path: Sequence[str], own: Path) -> Path | None:
    """Return the first `spark_producer` of `search_path`, other than `own`, that has compiled modules; None if there is none."""
    from importlib.machinery import EXTENSION_SUFFIXES

    for entry in search_path:
        package = type(own)(entry or ".").resolve() / own.name
        if package != own and any(any(package.glob(f"kernel/compiled*{suffix}")) for suffix in EXTENSION_SUFFIXES):
            return package
    return None


def warn(kernel: LoadedKernel) -> None:
    """Log the reason why the portable kernel is in use, its cost, and how to get the compiled one.

    The figures are from docs/benchmarks_kernel.md and docs/benchmarks.md (the parts with equal rows, and the part with headers
    and rows of many lengths).
    """
    if kernel.problem:
        _log.warning(
            "%s. It writes the same bytes. Whole writes are up to 9 %% slower if all rows are alike, and 17 %% if they have "
            "headers and many lengths; its loops over rows alone take 2 to 8 times as long, and Avro is decoded in 8 us a row. "
            "For the compiled one %s. A zip for --py-files cannot have it. %s=portable for the workers silences this warning.",
            kernel.describe(),
            kernel.advice,
            VARIABLE,
        )


def _load_compiled(twins: Twins) -> tuple[dict[str, Any], str]:
    """Return the functions of the compiled kernel and no problem, or no functions and the reason.

    It was not built as a whole, or for another machine, Python or C library.
    """
    names = {*AT_IMPORT.compiled, *ON_DEMAND.compiled, *twins.compiled}
    if any(importlib.util.find_spec(name) is None for name in names):
        return {}, _UNBUILT
    try:
        return _functions(twins, twins.compiled), ""
    except ImportError as error:
        return {}, f"no compiled module that can be loaded ({error})"


def _functions(twins: Twins, modules: Iterable[str]) -> dict[str, Any]:
    loaded = [importlib.import_module(name) for name in modules]
    return {name: getattr(module, name) for module in loaded for name in twins.functions if hasattr(module, name)}
