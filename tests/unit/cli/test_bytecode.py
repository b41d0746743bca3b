"""`pyproducer bytecode`: modules of an archive come from bytecode afterwards, and the archive is whole at every time."""

from __future__ import annotations

import importlib.util
import stat
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from spark_producer.cli import bytecode
from spark_producer.cli.entry import main

SECONDS = 60
SOURCE = "def where():\n    return where.__code__.co_filename, __file__\n"


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """The archive of a home of Spark, with one module and one test."""
    archive = tmp_path / "python" / "lib" / "pyspark.zip"
    archive.parent.mkdir(parents=True)
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("pyspark/__init__.py", SOURCE)
        file.writestr("pyspark/tests/test_it.py", "this is no Python")
        file.writestr("pyspark/py.typed", "")
    return archive


def where(archive: Path) -> list[str]:
    """Return the path of the code of the archive's module, and the file that it was loaded from."""
    program = "import sys; sys.path.insert(0, sys.argv[1]); import pyspark; print(*pyspark.where(), sep='\\n')"
    done = subprocess.run(
        [sys.executable, "-c", program, str(archive)], capture_output=True, text=True, timeout=SECONDS, check=True
    )
    return done.stdout.splitlines()


def add_bytecode(archive: Path, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["bytecode", "--spark-home", str(archive.parents[2])]) == 0
    return capsys.readouterr().out


def test_modules_come_from_bytecode_and_keep_their_path(archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert add_bytecode(archive, capsys) == f"{archive}: bytecode of 1 modules\n"
    path = str(archive / "pyspark" / "__init__.py")
    assert where(archive) == [path, f"{path}c"]
    assert [each.name for each in archive.parent.iterdir()] == ["pyspark.zip"]


def test_a_second_run_replaces_the_bytecode(archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    add_bytecode(archive, capsys)
    once = zipfile.ZipFile(archive).namelist()
    add_bytecode(archive, capsys)
    assert zipfile.ZipFile(archive).namelist() == once
    assert "pyspark/py.typed" in once


def test_another_python_passes_over_it(
    archive: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "MAGIC_NUMBER", b"\0\0\r\n")
    add_bytecode(archive, capsys)
    assert where(archive)[1] == str(archive / "pyspark" / "__init__.py")


def test_the_bytecode_of_another_python_is_replaced(
    archive: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(importlib.util, "MAGIC_NUMBER", b"\0\0\r\n")
        add_bytecode(archive, capsys)
    add_bytecode(archive, capsys)
    assert where(archive)[1] == str(archive / "pyspark" / "__init__.pyc")


def test_a_running_process_goes_on_to_import(archive: Path) -> None:
    """`zipimport` reads the directory of an archive once, and opens the archive again for each module."""
    with zipfile.ZipFile(archive, "a") as file:
        file.writestr("pyspark/late.py", SOURCE)
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); import pyspark; print('ready', flush=True); input(); "
        "import pyspark.late; print(pyspark.late.where()[1])"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(archive)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            assert bytecode.add_bytecode(archive) == 2
            out, _ = process.communicate("\n", timeout=SECONDS)
        finally:
            process.kill()
    assert out == f"{archive / 'pyspark' / 'late.py'}\n"


def test_the_archive_of_a_link_is_replaced_with_its_mode(archive: Path, tmp_path: Path) -> None:
    link = tmp_path / "linked.zip"
    link.symlink_to(archive)
    archive.chmod(0o640)
    bytecode.add_bytecode(link)
    assert link.is_symlink()
    assert "pyspark/__init__.pyc" in zipfile.ZipFile(archive).namelist()
    assert stat.S_IMODE(archive.stat().st_mode) == 0o640


def test_a_file_of_another_run_is_left_alone(archive: Path) -> None:
    """Two runs at the same time write two files."""
    other = archive.with_suffix(".part")
    other.write_bytes(b"half")
    bytecode.add_bytecode(archive)
    assert other.read_bytes() == b"half"


def test_a_module_for_another_python_stays_without(archive: Path) -> None:
    with zipfile.ZipFile(archive, "a") as file:
        file.writestr("pyspark/newer.py", "this is no Python")
    assert bytecode.add_bytecode(archive) == 1
    assert "pyspark/newer.pyc" not in zipfile.ZipFile(archive).namelist()


def test_spark_home_of_the_environment(
    archive: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_HOME", str(archive.parents[2]))
    assert main(["bytecode"]) == 0
    assert str(archive) in capsys.readouterr().out


def test_without_an_archive(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bytecode", "--spark-home", str(tmp_path)]) == 1
    assert capsys.readouterr().err == (
        f"pyproducer: {tmp_path / 'python' / 'lib'} has no pyspark.zip. Give the folder of a Spark to --spark-home\n"
    )


def test_an_archive_that_cannot_be_read_stays(archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    archive.write_bytes(b"this is no archive")
    assert main(["bytecode", "--spark-home", str(archive.parents[2])]) == 1
    assert "cannot be rewritten: File is not a zip file" in capsys.readouterr().err
    assert archive.read_bytes() == b"this is no archive"
    assert [each.name for each in archive.parent.iterdir()] == ["pyspark.zip"]
