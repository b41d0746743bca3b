"""The distributed files: the source archive, the wheel that is built from it, and the zip for `--py-files`."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from spark_producer import __version__
from tests.support.distribution import ROOT, Wheel, build_wheel, install, quick_compiler, run

PROGRAM = """
import numpy as np, pyarrow as pa, spark_producer, spark_producer.kernel as kernel
from spark_producer.kernel.column_views import BinaryColumn
print(spark_producer.__file__)
print(kernel.murmur2(BinaryColumn(pa.array([b"21"], pa.binary())))[0].astype(np.int32), kernel.LOADED.describe())
"""
THEIR_PROGRAM = """from spark_producer import Producer
with Producer({"bootstrap.servers": "localhost:9092"}) as producer:
    offset: str = producer.send("topic", b"value").result().offset
    producer.send(1, b"value")
"""
AT_THE_TOP = (
    "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "Makefile", "README.md", "SECURITY.md", "constraints.txt", "pyproject.toml",
    "mkdocs.yml", "conda/recipe.yaml", ".ci/release-requirements.txt", ".pre-commit-config.yaml", ".github/workflows/ci.yml",
)  # fmt: skip
MURMUR2_OF_21 = "-973932308"
"""as in Kafka's own tests"""
MAX_ZIP_BYTES = 600_000
"""of what every write and read may import"""
OF_A_REGISTRY = re.compile(r"spark_producer/(schemas/|kernel/\w*(avro|protobuf))")
"""What only the formats of a Schema Registry import."""
LEFT_OUT_OF_THE_ZIP = {"broker", "cli", "legacy_formats", "__main__.py"}


def run_with(library: Path, cwd: Path) -> tuple[str, str]:
    """Return the package's path with `library` in the path, and the description of its kernel."""
    place, said = run(sys.executable, "-P", "-c", PROGRAM, cwd=cwd, PYTHONPATH=str(library)).splitlines()
    return place, said


def site_packages_of_a_new_environment(place: Path) -> Path:
    venv.create(place, symlinks=True)
    return Path(sysconfig.get_path("purelib", "venv", {"base": str(place), "platbase": str(place)}))


def compiled(names: list[str]) -> set[str]:
    return {Path(name).name.split(".")[0] for name in names if name.endswith((".so", ".pyd"))}


@pytest.mark.slow
def test_the_source_archive_has_what_the_readme_links_to(sdist: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", (sdist / "README.md").read_text(encoding="utf-8"))
    assert {"docs/index.md", "CONTRIBUTING.md", "notebooks"} <= set(links)
    assert [link for link in links if not (sdist / link).exists()] == []
    for page in (sdist / "docs").glob("*.md"):
        links = re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8"))
        assert [link for link in links if not (page.parent / link).exists()] == [], page.name


@pytest.mark.slow
def test_the_source_archive_has_all_sources_and_nothing_built(sdist: Path) -> None:
    there = {path.relative_to(sdist) for path in sdist.rglob("*") if path.is_file()}
    folders = (
        "spark_producer",
        "pyspark_pyproducer",
        "jobs",
        "conf",
        "docs",
        "notebooks",
        "benchmarks",
        "tests",
        ".ci",
    )
    suffixes = (".py", ".pyx", ".pxd", ".pyi", ".json", ".md", ".svg", ".properties", ".conf", ".ipynb", "")
    tracked = {
        path.relative_to(ROOT)
        for folder in folders
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and path.suffix in suffixes and "__pycache__" not in path.parts
    }
    assert tracked - there == set()
    assert {Path(name) for name in AT_THE_TOP} <= there
    assert not [path for path in there if path.suffix in (".so", ".pyc", ".c")]


@pytest.mark.slow
def test_the_wheel_of_the_source_archive_has_the_compiled_kernel(wheel: Wheel, tmp_path: Path) -> None:
    _, names, unpacked = wheel
    assert compiled(names) == {
        "compiled",
        "compiled_avro",
        "compiled_avro_decode",
        "compiled_decode",
        "compiled_murmur2",
        "compiled_protobuf",
        "compiled_protobuf_decode",
        "compiled_single",
    }
    assert {"spark_producer/py.typed", "spark_producer/kernel/portable.py"} <= set(names)
    pages = f"pyproducer-{__version__}.data/data/share/doc/pyproducer"
    assert {f"{pages}/index.md", f"{pages}/exactly_once.md", f"{pages}/decisions/README.md"} <= set(names)
    assert not [name for name in names if name.startswith(("tests", "docs", "jobs", "benchmarks", "notebooks"))]
    metadata = (unpacked / f"pyproducer-{__version__}.dist-info" / "METADATA").read_text(encoding="utf-8")
    assert f"\nVersion: {__version__}\n" in metadata
    assert "\nLicense-File: LICENSE\n" in metadata
    assert re.findall(r"^(?:Author|Maintainer|Home-page|Project-URL)", metadata, re.MULTILINE) == [], (
        "the owner's to add"
    )
    place, said = run_with(unpacked, tmp_path)
    assert place.startswith(str(unpacked))
    assert said == f"{MURMUR2_OF_21} compiled kernel"


@pytest.mark.slow
def test_two_builds_give_equal_bytes(wheel: Wheel, sdist: Path, tmp_path: Path) -> None:
    """In another folder, later, and compiled again."""
    again = build_wheel(sdist, tmp_path, CC=quick_compiler(tmp_path))
    assert again.names == wheel.names
    different = [
        name for name in wheel.names if (wheel.unpacked / name).read_bytes() != (again.unpacked / name).read_bytes()
    ]
    assert different == []
    assert again.file.read_bytes() == wheel.file.read_bytes()


@pytest.mark.slow
def test_a_type_checker_of_others_sees_the_types_of_the_wheel(wheel: Wheel, tmp_path: Path) -> None:
    unpacked = wheel.unpacked
    shutil.copytree(unpacked, site_packages_of_a_new_environment(tmp_path / "theirs"), dirs_exist_ok=True)
    (tmp_path / "theirs.py").write_text(THEIR_PROGRAM, encoding="utf-8")
    mypy = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--python-executable",
        str(tmp_path / "theirs" / "bin" / "python"),
    ]
    done = subprocess.run(
        [*mypy, "--config-file", os.devnull, "theirs.py"],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "MYPYPATH")},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    found = re.findall(r"^theirs\.py:(\d+): \w+: .*\[([a-z-]+)\]$", done.stdout, re.MULTILINE)
    assert found == [("3", "assignment"), ("4", "arg-type")], done.stdout + done.stderr


@pytest.mark.slow
def test_where_the_compiler_fails_the_wheel_is_made_and_says_so_when_it_is_used(sdist: Path, tmp_path: Path) -> None:
    _, names, unpacked = build_wheel(sdist, tmp_path, CC=shutil.which("false") or "false")
    assert compiled(names) == set()
    assert run_with(unpacked, tmp_path)[1] == f"{MURMUR2_OF_21} portable kernel: no compiled module"
    shown = run(sys.executable, "-P", "-m", "spark_producer", "--version", cwd=tmp_path, PYTHONPATH=str(unpacked))
    assert "(portable kernel: no compiled module; Python" in shown


@pytest.mark.slow
def test_the_help_of_an_installed_wheel_says_where_the_pages_are(wheel: Wheel, tmp_path: Path) -> None:
    installed = install(wheel, tmp_path / "installed")
    command = (sys.executable, "-P", "-m", "spark_producer", "txn", "--help")
    *_, line = run(*command, cwd=tmp_path, PYTHONPATH=str(installed), COLUMNS="500").splitlines()
    assert line == f"The pages docs/… are in {installed / 'share' / 'doc' / 'pyproducer'}."


@pytest.mark.slow
def test_the_zip_for_py_files_is_small_and_works_where_it_lies(tmp_path: Path) -> None:
    archive = tmp_path / "made" / "pyproducer.zip"
    assert run(
        "make", "--no-print-directory", "zip", f"ZIP={archive}", f"PYTHON={sys.executable}", cwd=ROOT
    ).strip() == str(archive)
    with zipfile.ZipFile(archive) as contents:
        names = set(contents.namelist())
        formats = sum(each.compress_size for each in contents.infolist() if OF_A_REGISTRY.match(each.filename))
        assert archive.stat().st_size - formats <= MAX_ZIP_BYTES
        zipped = {name: contents.read(name).decode() for name in names}
    modules = {path.relative_to(ROOT).as_posix() for path in (ROOT / "spark_producer").rglob("*.py")}
    assert modules - names == {name for name in modules if name.split("/")[1] in LEFT_OUT_OF_THE_ZIP}
    assert names <= modules
    for name, source in zipped.items():
        original = (ROOT / name).read_text(encoding="utf-8")
        assert source.count("\n") == original.count("\n"), f"{name}: tracebacks name other lines"
        assert without_docstrings(source) == without_docstrings(original), f"{name}: other code"
    found_at, kernel = run_with(archive, tmp_path)
    assert found_at.startswith(str(archive))
    assert kernel == f"{MURMUR2_OF_21} portable kernel: no compiled module"


def without_docstrings(source: str) -> str:
    """The code as Python sees it."""
    module = ast.parse(source)
    for node in ast.walk(module):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            node.value.value = ""
    return ast.dump(module)
