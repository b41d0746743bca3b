"""Runs every notebook and keeps it with its outputs in docs/results/notebooks, without the traces of the run: `make notebooks`.

Owns: how a notebook is run, and what of it is kept. Must not know: what a notebook shows.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).resolve().parent
RESULTS = FOLDER.parent / "docs" / "results" / "notebooks"
SECONDS = 240
"""for one cell"""


def stored(path: Path) -> nbformat.NotebookNode:
    """The notebook in a file."""
    notebook: nbformat.NotebookNode = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]  # nbformat has no types
    return notebook


def run(path: Path, folder: Path) -> nbformat.NotebookNode:
    """The notebook, run from its first cell to its last in `folder`, with outputs that say nothing of when and where.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell raised.
    """
    notebook = stored(path)
    client = NotebookClient(
        notebook,
        timeout=SECONDS,
        iopub_timeout=SECONDS,
        record_timing=False,
        coalesce_streams=True,  # else what is printed comes in as many pieces as the machine was slow
        resources={"metadata": {"path": str(folder)}},
    )
    manager = client.create_kernel_manager()
    # Sockets in the file system: ports would be chosen long before the kernel takes them. Their paths must be short.
    with tempfile.TemporaryDirectory() as sockets:
        manager.transport, manager.ip = "ipc", f"{sockets}/kernel"
        client.execute()
    return stripped(notebook)


def stripped(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """The same without what differs from one machine and run to the next: times, versions, names of objects."""
    notebook.metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    for cell in notebook.cells:
        cell.metadata = {}
        for output in cell.get("outputs", []):
            if "data" in output:
                output.metadata = {}
                if {"image/png", "text/markdown"} & set(output.data):
                    output.data.pop("text/plain", None)  # <IPython.core.display.Image object>
    return notebook


def main() -> None:
    """Run and write all of them."""
    os.environ["PYTHONPATH"] = str(FOLDER.parent)  # two of them show the simulation in `benchmarks`
    for path in sorted(FOLDER.glob("*.ipynb")):
        with tempfile.TemporaryDirectory() as empty:
            nbformat.write(run(path, Path(empty)), RESULTS / path.name)  # type: ignore[no-untyped-call]  # as `read` above
        print(f"{path.name}: {(RESULTS / path.name).stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
