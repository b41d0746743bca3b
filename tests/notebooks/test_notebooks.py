"""Every notebook runs from its first cell to its last, in a kernel of its own."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
SECONDS = 240


@pytest.fixture
def kernel_of_this_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel `python3` that is this interpreter, wherever the machine's own kernels are."""
    kernel = tmp_path / "kernels" / "python3"
    kernel.mkdir(parents=True)
    command = f'["{sys.executable}", "-m", "ipykernel_launcher", "-f", "{{connection_file}}"]'
    (kernel / "kernel.json").write_text(
        f'{{"argv": {command}, "display_name": "Python 3", "language": "python"}}', encoding="utf-8"
    )
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])))


def test_there_are_notebooks() -> None:
    assert "partitioners" in {path.stem for path in NOTEBOOKS}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Proactor event loop|zmq")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_its_pictures(kernel_of_this_python: None, path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    drawn = sum("show(" in cell.source and "def show" not in cell.source for cell in notebook.cells)
    client = NotebookClient(
        notebook, timeout=SECONDS, iopub_timeout=SECONDS, resources={"metadata": {"path": str(path.parent)}}
    )
    manager = client.create_kernel_manager()
    # Sockets in the file system: ports would be chosen long before the kernel takes them. Their paths must be short.
    with tempfile.TemporaryDirectory() as sockets:
        manager.transport, manager.ip = "ipc", f"{sockets}/kernel"
        client.execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert not [output for output in outputs if output.output_type == "error"]
    assert sum("image/png" in output.get("data", {}) for output in outputs) == drawn > 0
