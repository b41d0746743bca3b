"""Archives of classes: when there is a new one, and that a JVM starts from it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from tests.support.class_archives import archive_of, is_wanted, making, spark_archive, use
from tests.support.ivy import class_path, java
from tests.support.kafka_node import KAFKA_4, TEST_JVM, kafka_jars

ROOT = Path(__file__).parents[2]
JVM_SECONDS = 60


def test_other_jars_have_another_archive(tmp_path: Path) -> None:
    (tmp_path / "a.jar").write_bytes(b"a")
    first = archive_of(tmp_path, tmp_path)
    assert archive_of(tmp_path, tmp_path) == first
    os.utime(tmp_path / "a.jar", ns=(0, 0))
    second = archive_of(tmp_path, tmp_path)
    (tmp_path / "b.jar").touch()
    assert len({first, second, archive_of(tmp_path, tmp_path)}) == 3


def test_an_archive_is_used_once_it_was_made_and_takes_the_place_of_older_ones(tmp_path: Path) -> None:
    older, archive = tmp_path / "classes-1.jsa", tmp_path / "classes-2.jsa"
    older.touch()
    with making(archive) as options:
        Path(options[0].partition("=")[2]).touch()
        assert use(archive) == ()
    assert use(archive)[0] == f"-XX:SharedArchiveFile={archive}"
    assert list(tmp_path.iterdir()) == [archive]


def test_an_older_archive_stays_where_a_java_makes_none(tmp_path: Path) -> None:
    older = tmp_path / "classes-1.jsa"
    older.touch()
    with making(tmp_path / "classes-2.jsa"):
        """The session writes no archive."""
    assert list(tmp_path.iterdir()) == [older], "it may be that of another Java, which can use it"


def test_an_archive_is_made_once_and_where_it_can_be_written(tmp_path: Path) -> None:
    archive = tmp_path / "classes-1.jsa"
    assert is_wanted(archive)
    assert not is_wanted(tmp_path / "no-such-folder" / "classes-1.jsa")
    archive.touch()
    assert not is_wanted(archive)


def test_an_environment_has_one_archive_by_whatever_links_it_is_found(tmp_path: Path) -> None:
    packages = Path(pyspark.__file__).parents[1]
    (tmp_path / "linked").symlink_to(packages)
    program = "from tests.support.class_archives import spark_archive; print(spark_archive().name)"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path / "linked"), str(ROOT)])}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=JVM_SECONDS, check=True)
    assert done.stdout.strip() == spark_archive().name


def test_nothing_is_left_of_an_archive_whose_jvm_fails(tmp_path: Path) -> None:
    def fail() -> None:
        with making(tmp_path / "classes-1.jsa") as options:
            Path(options[0].partition("=")[2]).touch()
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_a_java_that_makes_no_archive_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with making(tmp_path / "classes-1.jsa"):
        """The session writes no archive."""
    assert f"wrote no {tmp_path / 'classes-1.jsa'}" in capsys.readouterr().err
    assert use(tmp_path / "classes-1.jsa") == ()


@pytest.mark.kafka
@pytest.mark.slow
def test_a_jvm_of_kafka_takes_its_classes_from_the_archive(tmp_path: Path) -> None:
    def run(*options: str) -> str:
        command = [java(), *TEST_JVM, *options, "-cp", class_path(kafka_jars(KAFKA_4)), "kafka.tools.StorageTool"]
        done = subprocess.run(
            [*command, "random-uuid"], capture_output=True, text=True, timeout=JVM_SECONDS, check=True
        )
        return done.stdout

    archive = tmp_path / "classes-1.jsa"
    with making(archive) as options:
        assert len(run(*options).splitlines()) == 1
    assert len(run(*use(archive)).splitlines()) == 1
    loaded = run(*use(archive), "-Xshare:on", "-Xlog:class+load")
    (tool,) = [line for line in loaded.splitlines() if "] kafka.tools.StorageTool$ source" in line]
    assert tool.endswith("shared objects file (top)")
