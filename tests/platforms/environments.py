"""Environments with one version of Python and of Spark each, made by pip with the wheel of this tree.

Owns: where they are made, how a Python of a version is found. Must not know: what is tried in them.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

ROOT = Path(__file__).resolve().parents[2]
HOME = ROOT / "build" / "platforms"
MINUTES = 15


def python_of(version: str) -> Path | None:
    """A Python of this minor version, as 3.12: of the path, or one that pyenv keeps; None if there is none."""
    found = [Path(path) for path in [shutil.which(f"python{version}")] if path]
    found += sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python"), reverse=True)
    for python in found:
        done = subprocess.run([python, "-c", "import venv, ensurepip"], capture_output=True, timeout=60, check=False)
        if done.returncode == 0:
            return python
    return None


def build_wheel(settings: Mapping[str, str] = MappingProxyType({})) -> Path:
    """The wheel of this tree, with these variables. Builds take turns, since setuptools builds in the tree itself."""
    folder = HOME / f"wheel-{os.getpid()}"
    folder.mkdir(parents=True, exist_ok=True)
    with (HOME / "wheel.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # until the file is closed; a build ends by the timeout of `run`
        run(
            [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT)],
            settings,
        )
    (wheel,) = folder.glob("*.whl")
    return wheel


def make(python: Path, name: str, packages: list[str], within: Sequence[str] = ()) -> Path:
    """The Python of an environment of this name, which is kept from run to run, with these packages.

    `within` is what goes before a command that this Python runs, as in a root of another system.
    """
    place = HOME / name
    inside = place / "bin" / "python"
    if not os.path.lexists(inside):
        run([*within, str(python), "-m", "venv", str(place)])
    run([*within, str(inside), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages])
    return inside


def renew(python: Path, wheel: Path, within: Sequence[str] = ()) -> None:
    """Replace the wheel of an environment by this one."""
    run(
        [
            *within,
            str(python),
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--no-deps",
            "--force-reinstall",
            str(wheel),
        ]
    )


def run(command: list[str], settings: Mapping[str, str] = MappingProxyType({})) -> None:
    """Run a command with these variables; its error is raised with what it said."""
    # With a PYTHONPATH to this tree pip would find the package there, by its egg-info, and install none.
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | dict(settings)
    done = subprocess.run(command, env=kept, capture_output=True, text=True, timeout=60 * MINUTES, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
