"""The wheel that `pip wheel .` builds: the compiled kernel is in it, and works where there is no source tree."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
FILES, FOLDERS = ("pyproject.toml", "README.md"), ("spark_producer", "pyspark_pyproducer")
BUILT = shutil.ignore_patterns("*.so", "*.c", "__pycache__")
PROGRAM = """
import numpy as np, pyarrow as pa, spark_producer, spark_producer.kernel as kernel
from spark_producer.kernel.columns import BinaryColumn
import pyspark_pyproducer
print(kernel.KERNEL, kernel.murmur2(BinaryColumn(pa.array([b"21"], pa.binary())))[0].astype(np.int32))
"""


def run(*command: str, cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        command, cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_wheel_has_the_compiled_kernel(tmp_path: Path) -> None:
    sources, unpacked = tmp_path / "sources", tmp_path / "unpacked"
    sources.mkdir()
    for name in FILES:
        shutil.copy(ROOT / name, sources)
    for name in FOLDERS:
        shutil.copytree(ROOT / name, sources / name, ignore=BUILT)
    build = ("-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(tmp_path), ".")
    run(sys.executable, *build, cwd=sources)
    (wheel,) = tmp_path.glob("pyproducer-*.whl")
    with zipfile.ZipFile(wheel) as contents:
        names = contents.namelist()
        contents.extractall(unpacked)
    compiled = {Path(name).name.split(".")[0] for name in names if name.endswith((".so", ".pyd"))}
    assert compiled == {"compiled", "compiled_decode", "compiled_murmur2"}
    assert {"spark_producer/py.typed", "spark_producer/kernel/portable.py"} <= set(names)
    assert not [name for name in names if name.startswith("tests")]
    out = run(sys.executable, "-P", "-c", PROGRAM, cwd=tmp_path, PYTHONPATH=str(unpacked), PYPRODUCER_KERNEL="compiled")
    assert out.split() == ["compiled", "-973932308"], "murmur2 of '21', as in Kafka's own tests"
