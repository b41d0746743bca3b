"""A real Schema Registry: Apicurio Registry in a process of its own, with storage in memory and Confluent's REST interface.

Owns: its start, its end, and the log of what it was asked. Must not know: what a test writes.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from tests.support.ivy import fetch_archive, java
from tests.support.ports import free_ports
from tests.support.processes import ChildProcess
from tests.support.waiting import retry

VERSION = "3.0.9"
"""The last one that runs with Java 17."""

START_SECONDS = 60.0
STOP_SECONDS = 10.0


def registry_files() -> Path:
    """The folder of the registry's program."""
    return fetch_archive("io.apicurio", "apicurio-registry-app", VERSION, "all")


class SchemaRegistry:
    """The registry, as a context manager. `url` is its address; it refuses schemas that are not backward compatible."""

    def __init__(self) -> None:
        (self._port,) = free_ports(1)
        self._folder = Path(tempfile.mkdtemp(prefix="schema-registry-"))
        self._process: ChildProcess | None = None
        self.url = f"http://127.0.0.1:{self._port}/apis/ccompat/v7"

    def __enter__(self) -> SchemaRegistry:
        files = registry_files()
        command = [
            java(), "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dquarkus.http.host=127.0.0.1",
            f"-Dquarkus.http.port={self._port}", "-Dapicurio.storage.kind=sql", "-Dquarkus.http.access-log.enabled=true",
            "-jar", str(files / f"apicurio-registry-app-{VERSION}-runner.jar"),
        ]  # fmt: skip
        self._process = ChildProcess(command, self._folder / "output")
        try:
            self._wait()
            self.ask("PUT", "/config", {"compatibility": "BACKWARD"})
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self._end()

    def requests(self) -> list[str]:
        """Every request that was answered so far, `POST /apis/…`, in order."""
        assert self._process is not None
        lines = self._process.output.read_text(errors="replace").splitlines()
        found = (re.search(r'access method="(\w+)" path="([^"]*)"', line) for line in lines)
        return [f"{each[1]} {each[2]}" for each in found if each]

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """One request of a test's own."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
        with urllib.request.urlopen(
            urllib.request.Request(self.url + path, data, headers, method=method), timeout=30
        ) as answer:
            return json.loads(answer.read())

    def _wait(self) -> None:
        assert self._process is not None
        retry(
            lambda: self.ask("GET", "/subjects"),
            (OSError, ValueError),
            "the registry starts",
            seconds=START_SECONDS,
            pause=0.05,
            more=self._process.tail,
            ended=self._process.has_ended,
        )

    def _end(self) -> None:
        if self._process is not None:
            self._process.terminate(STOP_SECONDS)
        shutil.rmtree(self._folder, ignore_errors=True)
