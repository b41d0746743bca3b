"""Write constraints.txt: the newest versions of everything that `make setup-dev` installs, as pip finds them today.

What builds and releases the package is also written to .ci/release-requirements.txt and .ci/build-requirements.txt: with
hashes of its files for every platform, by uv.

With the oldest Python that is supported, because a version that needs a newer one could not be installed on it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HEADER = """\
# The versions that this project was tested with; Makefile and CI install these. `make constraints` writes this file.
# Users of the package are not bound by it: pyproject.toml says what is accepted.
"""


def resolve() -> list[str]:
    """A line for each package of all that is needed to run, test, check and build."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        wanted = [".[jobs,isal,kerberos]", "--group", "dev", "--group", "release", "pip"]
        pip = [sys.executable, "-m", "pip", "install", "--quiet"]
        only_plan = ["--dry-run", "--ignore-installed", "--report", str(report)]
        subprocess.run([*pip, *only_plan, *wanted], cwd=ROOT, check=True)
        found = json.loads(report.read_text(encoding="utf-8"))["install"]
    both = [(one["metadata"]["name"].lower(), one["metadata"]["version"]) for one in found]
    return sorted(f"{name}=={version}\n" for name, version in both if name != "pyproducer")


BUILDING = ("setuptools", "cython")
RELEASING = (*BUILDING, "pip", "cibuildwheel", "cyclonedx-bom", "towncrier")
FILES = {"build-requirements.txt": BUILDING, "release-requirements.txt": RELEASING}
HASHED = "# {what}, by hash, for every platform; `make constraints` writes this file.\n"
WHAT = {BUILDING: "What builds a wheel", RELEASING: "The tools that build and describe a release"}


def write_hashes() -> None:
    """Write the versions in constraints.txt of what builds and releases, and all that it needs, with hashes."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = Path(folder) / "bin" / "python"
        subprocess.run([python, "-m", "pip", "install", "--quiet", "uv"], check=True)
        options = ["--quiet", "--generate-hashes", "--universal", "--no-header", "--no-annotate", "--no-emit-index-url"]
        for name, wanted in FILES.items():
            command = [python, "-m", "uv", "pip", "compile", *options, "--constraint", "constraints.txt", "-"]
            text = "\n".join(wanted)
            done = subprocess.run(command, cwd=ROOT, input=text, capture_output=True, text=True, check=True)
            (ROOT / ".ci" / name).write_text(HASHED.format(what=WHAT[wanted]) + done.stdout, encoding="utf-8")


def main() -> None:
    """Renew the file, or say with which Python that is done."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    oldest = project["requires-python"].removeprefix(">=")
    running = f"{sys.version_info.major}.{sys.version_info.minor}"
    if running != oldest:
        sys.exit(
            f"constraints.txt is made with Python {oldest}, the oldest that is supported, and this is {running}: "
            f"make clean, then make constraints PYTHON=python{oldest}"
        )
    lines = resolve()
    (ROOT / "constraints.txt").write_text(HEADER + "".join(lines), encoding="utf-8")
    write_hashes()
    print(f"constraints.txt: {len(lines)} versions; now `make clean`, and .ci/run must pass with them")


main()
