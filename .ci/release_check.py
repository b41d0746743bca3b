"""Build a release twice, compare the bytes, install each artefact in an empty environment, and take the first steps with it.

`make release-check` runs this, in an empty clone too. It needs Python with venv, a C compiler, and Java 17.
"""

from __future__ import annotations

import filecmp
import json
import shutil
import subprocess
import sys
import time
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import build_release
from build_release import PIP_INSTALL, ROOT, run

HOME = ROOT / "build" / "release"
OUT = ROOT / "dist"
CI = ROOT / ".ci"
SECONDS = 300


def environment(name: str, *packages: str | Path) -> Path:
    """Return the Python of a new environment with these packages."""
    place = HOME / name
    venv.create(place, clear=True, with_pip=True)
    python = place / "bin" / "python"
    pip = (python, *PIP_INSTALL, "--constraint", ROOT / "constraints.txt")
    run(*pip, "--upgrade", "pip")
    run(*pip, "--build-constraint", ROOT / "constraints.txt", *packages)
    return python


@contextmanager
def broker(python: Path) -> Iterator[str]:
    """Run the embedded broker of an environment by its installed command; give its address."""
    command = [python.with_name("pyproducer"), "broker", "--port", "0", "--json"]
    process = subprocess.Popen(command, cwd=HOME, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout
        yield json.loads(process.stdout.readline())["bootstrap_servers"]
    finally:
        process.terminate()
        process.wait(SECONDS)


def tail(python: Path, servers: str, topic: str, records: int) -> list[str]:
    """Return what the installed `pyproducer tail` shows of a topic."""
    arguments = ("--bootstrap-servers", servers, "--from-beginning", "--max-records", str(records))
    return run(python.with_name("pyproducer"), "tail", topic, *arguments, cwd=HOME).splitlines()


def try_installed(name: str, artefact: Path) -> Path:
    """Install a wheel or a source archive without Spark, and write and tail against the embedded broker."""
    python = environment(name, artefact)
    print(run(python, CI / "try_wheel.py", cwd=HOME).strip(), f"[{artefact.name}]", flush=True)
    return python


def try_spark(python: Path, servers: str, topic: str, *arguments: str | Path) -> None:
    """Write three rows by a job of Spark, and read them back."""
    spark = {"PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": str(python), "SPARK_LOCAL_IP": "127.0.0.1"}
    said = run(python.with_name("spark-submit"), *arguments, CI / "try_spark.py", servers, topic, cwd=HOME, **spark)
    print(said.strip(), flush=True)


def compare(first: Path, second: Path) -> None:
    """Say which files of two builds differ; all must be equal."""
    names = sorted(path.name for path in first.iterdir() if path.is_file())
    _, different, missing = filecmp.cmpfiles(first, second, names, shallow=False)
    if different or missing:
        sys.exit(f"two builds differ: {', '.join([*different, *missing])}")
    print(f"two builds of {len(names)} files have equal bytes", flush=True)


def main() -> None:
    """Check all of it; every step ends the program if it fails."""
    began = time.monotonic()
    for folder in (OUT, HOME / "again"):
        shutil.rmtree(folder, ignore_errors=True)
        build_release.build(folder, {"sdist", "wheel", "sbom", "zip"})
    compare(OUT, HOME / "again")
    (sdist,), (wheel,), (archive,) = (list(OUT.glob(form)) for form in ("*.tar.gz", "*.whl", "*.zip"))
    without_spark = try_installed("from-wheel", wheel)
    try_installed("from-sdist", sdist)
    with_spark = environment("with-spark", f"{wheel}[spark]")
    with broker(without_spark) as servers:
        try_spark(with_spark, servers, "installed")
        assert len(tail(without_spark, servers, "installed", 3)) == 3
        run(with_spark, "-m", "pip", "uninstall", "--quiet", "--yes", "pyproducer")
        try_spark(with_spark, servers, "py-files", "--py-files", archive)
        assert len(tail(without_spark, servers, "py-files", 3)) == 3
    print(f"checked in {time.monotonic() - began:.0f} s: {', '.join(sorted(path.name for path in OUT.iterdir()))}")


if __name__ == "__main__":
    main()
