"""The commands `broker` and `tail` show no secret: not in what they print or write to files, nor on their command lines."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.security import ours
from tests.security.wrong import WRONG_PASSWORD
from tests.support.certificates import Certificates
from tests.support.ports import free_ports
from tests.support.processes import ChildProcess
from tests.support.waiting import wait_until

USER, PASSWORD, OTHER_PASSWORD = "reader", "reader-pw-c0de", "other-pw-f00d"
COMMAND = [sys.executable, "-m", "spark_producer"]
SECONDS = 60.0
IN_PYTHON = "import logging\nlogging.basicConfig(level=logging.DEBUG)\n"


class Commands:
    """A broker, a folder with all that it and its clients have written, and `inputs` with their secrets."""

    def __init__(self, home: Path, inputs: Path) -> None:
        self.home, self.inputs = home, inputs
        certificates = Certificates(inputs)
        certificates.issue("broker")
        users = inputs / "users"
        users.write_text(f"{USER}={PASSWORD}\nother={OTHER_PASSWORD}\n")
        users.chmod(0o600)
        (inputs / "sitecustomize.py").write_text(IN_PYTHON)
        self.address = f"127.0.0.1:{free_ports(1)[0]}"
        self.environment = {
            "PYTHONPATH": os.pathsep.join([str(inputs), str(Path(__file__).parents[2])]),
            "TMPDIR": str(home),
        }
        files = {"--tls-cert": "broker.crt", "--tls-key": "broker.key", "--users": "users"}
        reported = [argument for option, name in files.items() for argument in (option, str(inputs / name))]
        where = ["--port", self.address.split(":")[1], "--data-dir", str(home / "data")]
        command = [*COMMAND, "broker", "--security-protocol", "SASL_SSL", *where, *reported]
        self.broker = ChildProcess(command, home / "broker.txt", self.environment)

    def settings(self, password: str) -> dict[str, str]:
        """Return the settings of a client."""
        return {
            "bootstrap.servers": self.address,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.inputs / "ca.pem"),
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": USER,
            "sasl.password": password,
        }

    def wait_until_ready(self, topic: str) -> None:
        """Write until the broker takes it."""
        broker = self.broker
        wait_until(
            lambda: "Ctrl-C stops it" in broker.tail() or broker.has_ended(),
            "the broker is ready",
            seconds=SECONDS,
            pause=0.05,
            more=broker.tail,
        )
        ours.write(self.settings(PASSWORD), topic, 1)

    def tail(self, topic: str, password: str, name: str) -> int:
        """Run `tail` for one record, keep its output and its command line, and return its exit code."""
        file = self.inputs / f"{name}.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in self.settings(password).items()))
        command = [*COMMAND, "tail", "--command-config", str(file), "--from-beginning", "--max-records", "1", topic]
        with (self.home / f"{name}.txt").open("wb") as output:
            running = subprocess.Popen(
                command, stdout=output, stderr=subprocess.STDOUT, env={**os.environ, **self.environment}
            )
            try:
                while not (command_line := Path(f"/proc/{running.pid}/cmdline").read_bytes()):  # it is being started
                    assert running.poll() is None
                (self.home / f"{name}.cmdline").write_bytes(command_line)
                return running.wait(SECONDS)
            finally:
                running.kill()
                running.wait()

    def hits(self, canary: str) -> list[str]:
        """Names of the files in `home` that hold a canary."""
        files = (path for path in self.home.rglob("*") if path.is_file())
        return [path.name for path in files if canary.encode() in path.read_bytes()]


@pytest.fixture
def commands(tmp_path: Path) -> Iterator[Commands]:
    """The broker runs when the test begins."""
    for name in ("home", "inputs"):
        (tmp_path / name).mkdir()
    found = Commands(tmp_path / "home", tmp_path / "inputs")
    yield found
    found.broker.kill()


@pytest.mark.covers("SEC40")
def test_broker_and_tail_show_no_secret(commands: Commands, topic: str) -> None:
    commands.wait_until_ready(topic)
    assert commands.tail(topic, PASSWORD, "right") == 0
    assert commands.tail(topic, WRONG_PASSWORD, "wrong") != 0
    (commands.home / "broker.cmdline").write_bytes(Path(f"/proc/{commands.broker.pid}/cmdline").read_bytes())
    assert USER in (commands.home / "wrong.txt").read_text()
    assert "0:0" in (commands.home / "right.txt").read_text()
    assert "tail" in (commands.home / "right.cmdline").read_text()
    for canary in (PASSWORD, OTHER_PASSWORD, WRONG_PASSWORD):
        assert commands.hits(canary) == []
