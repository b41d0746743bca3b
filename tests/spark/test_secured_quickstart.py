"""The quickstart with TLS and a login: as people run it, and what else connects by the file that it writes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.spark.test_jobs import DEADLINE, JOBS, ROWS, assert_report, leftovers, running, wait_for_output

QUICKSTART = str(JOBS / "quickstart.py")


@pytest.mark.spark
@pytest.mark.slow
def test_quickstart_secured(tmp_path: Path) -> None:
    """With --keep: `pyproducer tail` and a foreign client read from it until Ctrl-C, which removes the file, too."""
    with running(tmp_path, sys.executable, QUICKSTART, "--secure", "--keep") as job:
        wait_for_output(job, "until Ctrl-C")
        said = job.output.read_text()
        file = Path(re.findall(r"options of its clients: (\S+)", said)[0])
        assert file.stat().st_mode & 0o777 == 0o600
        assert (file.parent / "broker.key").stat().st_mode & 0o777 == 0o600
        options = dict(line.split("=", 1) for line in file.read_text().splitlines())
        user, password = re.findall(r'(?:username|password)="([^"]+)"', options["sasl.jaas.config"])
        assert password not in said
        tail = [
            sys.executable,
            "-m",
            "spark_producer",
            "tail",
            "flights",
            "--command-config",
            str(file),
            "--from-beginning",
        ]
        done = subprocess.run(
            [*tail, "--max-records", "1"], capture_output=True, text=True, timeout=DEADLINE, check=False
        )
        assert (done.returncode, done.stdout.count("\n")) == (0, 1), done.stderr
        assert sum(ends_of(options, user, password)) == ROWS
        os.kill(job.pid, signal.SIGINT)
        assert job.wait(DEADLINE) == 0, job.tail()
    assert leftovers(tmp_path) == []
    assert_report(said)


def ends_of(options: dict[str, str], user: str, password: str) -> list[int]:
    """The ends of the partitions of the topic `flights`, as librdkafka sees them."""
    consumer = Consumer(
        {
            "bootstrap.servers": options["bootstrap.servers"],
            "security.protocol": options["security.protocol"],
            "ssl.ca.location": options["ssl.truststore.location"],
            "sasl.mechanism": options["sasl.mechanism"],
            "sasl.username": user,
            "sasl.password": password,
            "group.id": "none",
        }
    )
    try:
        partitions = consumer.list_topics("flights", timeout=DEADLINE).topics["flights"].partitions
        return [consumer.get_watermark_offsets(TopicPartition("flights", one), DEADLINE)[1] for one in partitions]
    finally:
        consumer.close()


def refused(*arguments: str, path: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, QUICKSTART, "--secure", *arguments]
    environment = {**os.environ, "PATH": path}
    return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, env=environment, check=False)


def test_without_openssl_one_line_says_how_to_get_it(tmp_path: Path) -> None:
    done = refused(path=str(tmp_path))
    assert done.returncode == 1
    (line,) = done.stderr.strip().splitlines()
    assert "apt-get install openssl" in line


def test_an_openssl_that_fails_is_quoted(tmp_path: Path) -> None:
    command = tmp_path / "openssl"
    command.write_text("#!/bin/sh\necho no such option >&2\nexit 1\n")
    command.chmod(0o755)
    done = refused(path=f"{tmp_path}:{os.environ['PATH']}")
    assert done.returncode == 1
    assert done.stderr.strip() == "quickstart: openssl could not create a certificate: no such option"


def test_a_cluster_of_ones_own_has_its_own_security() -> None:
    done = refused("--bootstrap-servers", "127.0.0.1:9", path=os.environ["PATH"])
    assert done.returncode == 2
    assert "--secure is for the embedded broker" in done.stderr
