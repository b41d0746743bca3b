"""Every notebook runs with the installed package, Spark and matplotlib alone, and is kept with its outputs."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from notebooks.run import RESULTS, run, stored

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
MAX_BYTES = 500_000

ALONE = """
import sys

class Absent:
    \"\"\"What a reader's machine does not have: the checkout's other folders, and what only tests and benchmarks need.\"\"\"

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names}:
            raise ModuleNotFoundError(f"{{name}} is not part of what a notebook needs", name=name)

sys.meta_path.insert(0, Absent())
"""
NOT_NEEDED = {
    "tests", "benchmarks", "notebooks", "confluent_kafka", "kio", "hypothesis", "pytest", "chispa", "psutil",
}  # fmt: skip
"""Without `kafka` and `pandas`, for which PySpark itself looks when a session starts."""
ALSO_NEEDED = {"avro": {"confluent_kafka"}, "partitioners": {"benchmarks"}, "tuning": {"benchmarks"}}
"""The modules that notebooks need: the client of a Schema Registry, `pyproducer[schemas]`, and the checkout's simulation."""


@pytest.fixture
def machine_of_a_reader(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder; a kernel `python3` that is this interpreter, with the package as an installation has it."""
    kernel, installed, empty = tmp_path / "kernels" / "python3", tmp_path / "installed", tmp_path / "empty"
    kernel.mkdir(parents=True)
    empty.mkdir()
    command = f'["{sys.executable}", "-m", "ipykernel_launcher", "-f", "{{connection_file}}"]'
    (kernel / "kernel.json").write_text(
        f'{{"argv": {command}, "display_name": "Python 3", "language": "python"}}', encoding="utf-8"
    )
    for package in ("spark_producer", "benchmarks/partitioning"):
        shutil.copytree(ROOT / package, installed / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "benchmarks" / "__init__.py", installed / "benchmarks")
    names = sorted(NOT_NEEDED - ALSO_NEEDED.get(path.stem, set()))
    (installed / "sitecustomize.py").write_text(ALONE.format(names=names), encoding="utf-8")
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("PYTHONPATH", str(installed))
    return empty


def outputs(notebook: Any, kind: str) -> list[str]:
    """The outputs of a MIME type, or `text` for what was printed, in their order."""
    found = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert not [output for output in found if output.output_type == "error"]
    return [text for output in found if (text := output.get("data", {}).get(kind) or output.get(kind))]


def pictures_drawn(notebook: Any) -> int:
    """Return the number of cells that draw a picture; a DataFrame has a `show` of its own."""
    return sum(bool(re.search(r"^ *show\(", cell.source, re.MULTILINE)) for cell in notebook.cells)


def test_there_are_notebooks() -> None:
    first = {"quickstart", "streaming", "exactly_once", "kafka_to_kafka", "dead_letters", "avro"}
    assert {path.stem for path in NOTEBOOKS} >= first | {"tuning", "partitioners", "broker_memory"} | set(ALSO_NEEDED)


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore:Proactor event loop|zmq")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_says_what_is_kept_of_it(machine_of_a_reader: Path, path: Path) -> None:
    """Pictures are drawn; tables and figures are those that are kept with it (`make notebooks` writes them again)."""
    fresh, kept = run(path, machine_of_a_reader), stored(RESULTS / path.name)
    assert len(outputs(fresh, "image/png")) == pictures_drawn(fresh) > 0
    print(*outputs(fresh, "text"), sep="\n")
    for kind in ("text/markdown", "text"):
        assert outputs(fresh, kind) == outputs(kept, kind)
    assert list(machine_of_a_reader.iterdir()) == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_kept_with_its_pictures_and_without_traces_of_the_run(path: Path) -> None:
    kept = stored(RESULTS / path.name)
    sources = [[(cell.cell_type, cell.source) for cell in one.cells] for one in (kept, stored(path))]
    assert sources[0] == sources[1], "run `make notebooks`"
    assert not [cell for cell in stored(path).cells if cell.get("outputs")], "outputs are kept in docs/results alone"
    assert len(outputs(kept, "image/png")) == pictures_drawn(kept) > 0
    assert all(cell.metadata == {} for cell in kept.cells)
    assert all(output.get("metadata", {}) == {} for cell in kept.cells for output in cell.get("outputs", []))
    text = (RESULTS / path.name).read_text(encoding="utf-8")
    assert not re.search(r"/(home|root|tmp|Users)/|site-packages| at 0x|iopub|\b20[2-9]\d-\d\d-\d\d", text)
    assert (RESULTS / path.name).stat().st_size < MAX_BYTES
