"""The earlier versions whose state is kept here, and their code, from the history of this repository."""

from __future__ import annotations

import subprocess
import tarfile
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
STATES = Path(__file__).parent / "states"


class Version(NamedTuple):
    """A state of 0.1.0: its day, its commit, and the version of its control records."""

    day: str
    commit: str
    control: int


VERSIONS = (
    Version("2026-11-23", "084aca252b38b929599131e5352d89931736c9ea", 1),
    Version("2026-11-26", "1ae904324c75afe10b9e412737a9aa40d57bd6de", 2),
    Version("2026-11-28", "442c1635457a4fe336820c495450423e08094827", 3),
)
"""0.1.0 was never tagged: `version.py` has said so from 22 November on. These are the last commits of each version of control
records, and the last one before the release candidate."""


def tree_of(version: Version, folder: Path) -> Path:
    """Unpack the code and the tests of a version into a folder, and return it.

    Raises:
        RuntimeError: the repository has no history.
    """
    found = folder / version.day
    if found.exists():
        return found
    done = subprocess.run(
        ["git", "archive", version.commit, "spark_producer", "pyspark_pyproducer", "tests"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(
            f"the code of {version.day} cannot be unpacked: {done.stderr.decode().strip()}. This needs a clone with its history: "
            "git fetch --unshallow"
        )
    with tarfile.open(fileobj=BytesIO(done.stdout)) as archive:
        archive.extractall(found, filter="data")
    return found
