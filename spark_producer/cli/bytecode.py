"""The command `pyproducer bytecode`, which adds bytecode to the archives from which Spark's Python processes import PySpark.

Python never writes bytecode into an archive, so each of these processes compiles PySpark again. Its `zipimport` prefers a `.pyc`
beside a `.py`; a Python of another version ignores it.
"""

from __future__ import annotations

import argparse
import importlib.util
import marshal
import os
import shutil
import tempfile
import warnings
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from zipfile import ZIP_DEFLATED, BadZipFile, ZipFile

from spark_producer.cli.console import print_line
from spark_producer.cli.json_output import add_json, print_json
from spark_producer.common.escape import for_log
from spark_producer.errors import ConfigError

ARCHIVES = ("pyspark.zip", "py4j-*-src.zip")
"""What Spark puts first on the path of its Python processes (`PythonUtils.sparkPythonPath`)."""

_UNCHECKED_HASH = (0b01).to_bytes(4, "little")
"""The flag of bytecode that is used without a look at its source (PEP 552): the two are in one archive."""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command and its arguments to `commands`."""
    bytecode = commands.add_parser(
        "bytecode",
        description="Add bytecode to Spark's pyspark.zip, so that its Python processes start faster. Run it once on each node, "
        "or in the image, with the Python of PYSPARK_PYTHON.",
    )
    bytecode.add_argument(
        "--spark-home", type=Path, metavar="DIR", help="default: SPARK_HOME, or the PySpark of this Python"
    )
    add_json(bytecode, "a JSON object for each archive on a line")
    bytecode.set_defaults(run=_run, unfinished="no archive was left half written")


def _run(chosen: argparse.Namespace) -> None:
    for archive in _archives(chosen.spark_home or _spark_home()):
        try:
            modules = add_bytecode(archive)
        except (OSError, BadZipFile) as error:
            raise ConfigError(
                f"{for_log(str(archive))} cannot be rewritten: {error}. Run this as the owner of that folder"
            ) from error
        if chosen.json:
            print_json({"archive": str(archive), "modules": modules})
        else:
            print_line(f"{archive}: bytecode of {modules:,} modules")


def _spark_home() -> Path:
    """Return SPARK_HOME, or the folder of an installed PySpark, which is a home of Spark too."""
    if given := os.environ.get("SPARK_HOME"):
        return Path(given)
    found = importlib.util.find_spec("pyspark")
    if found is None or not found.submodule_search_locations:
        raise ConfigError("there is no PySpark for this Python, and SPARK_HOME is not set. Give --spark-home")
    return Path(found.submodule_search_locations[0])


def _archives(home: Path) -> Sequence[Path]:
    """Return the archives of a home of Spark."""
    folder = home / "python" / "lib"
    found = [archive for pattern in ARCHIVES for archive in sorted(folder.glob(pattern))]
    if not found:
        raise ConfigError(f"{for_log(str(folder))} has no pyspark.zip. Give the folder of a Spark to --spark-home")
    return found


def add_bytecode(archive: Path) -> int:
    """Replace an archive by one with the bytecode of this Python after its modules, without tests; return their number.

    All that was in it keeps its position, which the `zipimport` of a running process remembers: its later imports go on. Runs at
    the same time do not disturb each other.

    Raises:
        OSError: the archive cannot be read or replaced. BadZipFile: it is not a ZIP archive.
    """
    target = archive.resolve()
    descriptor, name = tempfile.mkstemp(prefix=f"{target.name}.", dir=target.parent)
    os.close(descriptor)
    copy = Path(name)
    try:
        shutil.copyfile(target, copy)
        modules = _append_bytecode(copy, archive)
        with copy.open("rb+") as file:
            os.fsync(file.fileno())
        with suppress(OSError):  # only root may give a file to another owner
            os.chown(copy, target.stat().st_uid, target.stat().st_gid)
        shutil.copymode(target, copy)
        copy.replace(target)
    finally:
        copy.unlink(missing_ok=True)
    return modules


def _append_bytecode(copy: Path, archive: Path) -> int:
    """Append the bytecode of the modules in `copy`, which is to replace `archive`; return the number of modules."""
    modules = 0
    with ZipFile(copy) as old, ZipFile(copy, "a", ZIP_DEFLATED) as new, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about sources, and about names of older bytecode, which the new one hides
        names = set(old.namelist())
        for entry in old.infolist():
            if not entry.filename.endswith(".py") or "/tests/" in entry.filename:
                continue
            source = old.read(entry)
            header = importlib.util.MAGIC_NUMBER + _UNCHECKED_HASH + importlib.util.source_hash(source)  # PEP 552
            name = f"{entry.filename}c"
            if name not in names or not old.read(name).startswith(header):
                try:
                    code = compile(source, str(archive / entry.filename), "exec", dont_inherit=True, optimize=0)
                except (SyntaxError, ValueError):  # a module for another Python
                    continue
                new.writestr(name, header + marshal.dumps(code))
            modules += 1
    return modules
