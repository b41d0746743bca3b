"""Makes the stored states again, with the code of each version at its commit: `python -m tests.upgrade` (two minutes).

It needs a clone with its history and the packages of `make setup-dev`; the kernels of the earlier versions are the portable ones.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
from itertools import product
from pathlib import Path

from tests.upgrade.versions import STATES, VERSIONS, tree_of

PROGRAM = Path(__file__).with_name("make_state.py")
SECONDS = 300


def main() -> None:
    STATES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for version, engine, transactions in product(VERSIONS, ("segments", "tiered"), (0, 2)):
            name = f"{version.day}-{engine}-{transactions}"
            directory = Path(folder) / name
            tree = tree_of(version, Path(folder) / "trees")
            environment = {**os.environ, "PYTHONPATH": str(tree), "PYPRODUCER_KERNEL": "portable"}
            program = [sys.executable, "-P", str(PROGRAM), str(directory), engine, str(transactions)]
            subprocess.run(program, env=environment, check=True, timeout=SECONDS, cwd=folder)
            with tarfile.open(STATES / f"{name}.tar.xz", "w:xz") as archive:
                archive.add(directory, name)
                archive.add(directory.with_name(f"{name}.json"), f"{name}.json")
            print(name, (STATES / f"{name}.tar.xz").stat().st_size, "bytes")


if __name__ == "__main__":
    main()
