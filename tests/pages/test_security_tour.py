"""The commands of docs/security.md on one machine, run as printed: a certificate, a broker with a login, a file, a record."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs.update import ROOT
from spark_producer import Producer
from spark_producer.cli.entry import main
from spark_producer.errors import AuthenticationFailed
from tests.support.processes import ChildProcess
from tests.support.waiting import wait_until

SECONDS = 60.0


def blocks(language: str) -> list[str]:
    page = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    (section,) = re.findall(r"^## Try it on one machine$(.*?)^## ", page, re.MULTILINE | re.DOTALL)
    return re.findall(rf"^```{language}\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)


@pytest.fixture
def client_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file of the page, in the working directory, for a broker that was started as the page says, but on a free port."""
    monkeypatch.chdir(tmp_path)
    _, by_hand, _ = blocks("console")
    *preparations, start = [line.removeprefix("$ ") for line in by_hand.splitlines()]
    for command in preparations:
        subprocess.run(["bash", "-c", command], check=True, capture_output=True, timeout=SECONDS)
    arguments = shlex.split(start)
    arguments[arguments.index("--port") + 1] = "0"
    broker = ChildProcess(
        [sys.executable, "-m", "spark_producer", *arguments[1:]], tmp_path / "output", {"PYTHONPATH": str(ROOT)}
    )
    try:
        port = port_of(broker)
        (content,) = blocks("properties")
        file = tmp_path / "client.properties"
        file.write_text(content.replace("localhost:9093", f"localhost:{port}"))
        yield file
    finally:
        broker.kill()


def port_of(broker: ChildProcess) -> str:
    line = re.compile(r"^broker on \S+:(\d+) \(SASL_SSL\)", re.MULTILINE)
    said = wait_until(
        lambda: line.search(broker.output.read_text()),
        "the broker's port",
        seconds=SECONDS,
        pause=0.05,
        more=broker.tail,
        ended=broker.has_ended,
    )
    assert said is not None
    return said[1]


def test_what_the_page_shows_on_one_machine(client_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in blocks("console")[-1].splitlines():
        assert main(shlex.split(command)[2:]) == 0, command
    with Producer({"profile": client_file.name}) as producer:
        producer.send("people", "Ada", key="1").result(SECONDS)
    assert main(["tail", "people", "--command-config", client_file.name, "--from-beginning", "--max-records", "1"]) == 0
    shown = capsys.readouterr().out
    assert "key=1  value=Ada" in shown
    assert "ok       login: the brokers know this client as user 'spark'" in shown
    client_file.write_text(client_file.read_text().replace("only-a-try", "another"))
    with (
        pytest.raises(AuthenticationFailed, match=r"'spark' with SCRAM-SHA-512"),
        Producer({"profile": client_file.name}) as producer,
    ):
        producer.send("people", "Grace")
    assert main(["tail", "people", "--command-config", client_file.name]) == 1
    said = capsys.readouterr().err
    assert "'spark' with SCRAM-SHA-512" in said
    assert "another" not in said
