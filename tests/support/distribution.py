"""The source archive, and the wheel that is built from it.

Owns: what is left out of a checkout, the builds, where they are unpacked. Must not know: what should be in them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path
from runpy import run_path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
SECONDS = 280
NOT_SOURCE = shutil.ignore_patterns(
    "*.so", "*.c", "__pycache__", ".git", ".venv", ".*_cache", ".hypothesis", "build", "dist"
)
RELEASE = run_path(str(ROOT / ".ci" / "build_release.py"))
"""How a release is built."""
SDIST = "import sys; from setuptools.build_meta import build_sdist; build_sdist(sys.argv[1])"


class Wheel(NamedTuple):
    """A wheel: the file, the names in it, and where it is unpacked."""

    file: Path
    names: list[str]
    unpacked: Path


def run(*command: str, cwd: Path, **environment: str) -> str:
    """The standard output of a command that must succeed."""
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def build_sdist(folder: Path) -> Path:
    """The unpacked source archive of this checkout."""
    shutil.copytree(ROOT, folder / "checkout", ignore=NOT_SOURCE)
    run(sys.executable, "-c", SDIST, str(folder), cwd=folder / "checkout")
    (archive,) = folder.glob("pyproducer-*.tar.gz")
    with tarfile.open(archive) as contents:
        contents.extractall(folder / "unpacked", filter="data")
    (unpacked,) = (folder / "unpacked").iterdir()
    return unpacked


def build_wheel(sources: Path, folder: Path, **environment: str) -> Wheel:
    """A wheel of these sources, with the day and the flags of a release."""
    copied = shutil.copytree(sources, folder / "sources")
    environment = {**RELEASE["equal_bytes"](copied), **environment}
    build = ("-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), ".")
    run(sys.executable, *build, cwd=copied, **environment)
    (wheel,) = folder.glob("pyproducer-*.whl")
    with zipfile.ZipFile(wheel) as contents:
        contents.extractall(folder / "unpacked")
        return Wheel(wheel, contents.namelist(), folder / "unpacked")


def quick_compiler(folder: Path) -> str:
    """The compiler of this Python, but without optimisation, in half the time: tests look at what a wheel holds, not how fast."""
    script = folder / "quick-compiler"
    script.write_text(f'#!/bin/sh\nexec {sysconfig.get_config_var("CC")} "$@" -O0\n')
    script.chmod(0o755)
    return str(script)


def install(wheel: Wheel, target: Path) -> Path:
    """The package as `pip install` leaves it; what it depends on is not installed again."""
    pip = ("-m", "pip", "install", "--quiet", "--no-deps", "--target", str(target), str(wheel.file))
    run(sys.executable, *pip, cwd=target.parent)
    return target
