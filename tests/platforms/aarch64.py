"""Try the wheel for aarch64 by emulation, and put a line into docs/platforms.md: `python -m tests.platforms.aarch64`.

It needs gcc-aarch64-linux-gnu, with which the kernel is compiled here, and the root of `make roots ARGS=aarch64`, in which the
compiled loops are compared with the portable ones, and the wheel writes to the embedded broker and reads, without Spark.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.platforms import environments, roots
from tests.platforms.__main__ import PAGE
from tests.platforms.environments import ROOT, build_wheel, make, renew
from tests.platforms.kernels import run
from tests.platforms.page import with_part

TRIED = ROOT / "docs" / "results" / "aarch64.json"
BEGIN, END = "<!-- made by python -m tests.platforms.aarch64 -->", "<!-- end of the line for aarch64 -->"
TRY_WHEEL = ROOT / ".ci" / "try_wheel.py"
COMPILER = "aarch64-linux-gnu-gcc"
TAGS = ("manylinux_2_28_aarch64", "manylinux_2_17_aarch64", "manylinux2014_aarch64")
"""The wheels that the C library of the root can load."""
MINUTES = 15


def main() -> int:
    """Try and print; 1 if something failed."""
    place = roots.HOME / "aarch64"
    if not place.exists():
        raise SystemExit("there is no root for aarch64: make roots ARGS=aarch64")
    roots.register()
    within = roots.inside(place)
    wheel = build_wheel(compiling(place))
    python = make(Path("/usr/bin/python3"), "aarch64", ["pip"], within)
    install_dependencies(python)
    renew(python, wheel, within)
    loops = {loop: each["equal"] for loop, each in run([*within, str(python)], "1").items()}
    print(json.dumps(loops), flush=True)
    done = subprocess.run(
        [*within, str(python), str(TRY_WHEEL)], capture_output=True, text=True, timeout=60 * MINUTES, check=False
    )
    said = (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines()[-1]
    print(said, flush=True)
    wrong = [loop for loop, equal in loops.items() if not equal] + ([] if done.returncode == 0 else [said])
    tried = {"day": f"{datetime.now(UTC):%Y-%m-%d}", "loops": list(loops), "wrong": wrong, "said": said}
    TRIED.write_text(json.dumps(tried, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(with_line(PAGE.read_text(encoding="utf-8"), tried), encoding="utf-8")
    return bool(wrong)


def install_dependencies(python: Path) -> None:
    """Install what the package depends on from outside: emulated, pip takes minutes for it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    packages = python.parents[1] / "lib" / "python3.11" / "site-packages"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--upgrade", "--target", str(packages)]
    command += ["--only-binary=:all:", "--implementation=cp", "--python-version=3.11"]
    environments.run([*command, *(f"--platform={tag}" for tag in TAGS), *project["dependencies"]])


def compiling(root: Path) -> dict[str, str]:
    """The variables with which setuptools compiles for aarch64, with the headers of this root."""
    headers = root / "usr" / "include"
    return {
        "CC": COMPILER,
        "LDSHARED": f"{COMPILER} -shared",
        "CFLAGS": f"-I{headers}/python3.11 -idirafter {headers}",  # Debian's pyconfig.h includes that of the processor
        "_PYTHON_HOST_PLATFORM": "linux-aarch64",
    }


def with_line(page: str, tried: dict[str, Any]) -> str:
    """The page with the line of this result.

    Raises:
        ValueError: the page has no marks for it.
    """
    outcome = f"**no**: {'; '.join(tried['wrong'])}" if tried["wrong"] else f"yes.\n`{tried['said']}`"
    line = (
        f"aarch64, emulated by qemu, {tried['day']}: {len(tried['loops'])} compiled loops equal the portable ones, and the wheel "
        f"writes and reads without Spark: {outcome}"
    )
    return with_part(page, BEGIN, END, line)


if __name__ == "__main__":
    sys.exit(main())
