"""Write constraints.txt: the newest versions of everything that `make setup-dev` installs, as pip finds them today.

With the oldest Python that is supported, because a version that needs a newer one could not be installed on it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import tomllib
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
        wanted = [".[jobs,isal,kerberos]", "--group", "dev", "--group", "wheels", "pip"]
        pip = [sys.executable, "-m", "pip", "install", "--quiet"]
        only_plan = ["--dry-run", "--ignore-installed", "--report", str(report)]
        subprocess.run([*pip, *only_plan, *wanted], cwd=ROOT, check=True)
        found = json.loads(report.read_text(encoding="utf-8"))["install"]
    both = [(one["metadata"]["name"].lower(), one["metadata"]["version"]) for one in found]
    return sorted(f"{name}=={version}\n" for name, version in both if name != "pyproducer")


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
    print(f"constraints.txt: {len(lines)} versions; now `make clean`, and .ci/run must pass with them")


main()
