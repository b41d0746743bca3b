"""Prometheus (Debian's package) as a child process: it scrapes pages of this machine, and answers PromQL.

Owns: its configuration, its start and its end. Must not know: what is scraped, what is asked.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, NamedTuple, Self
from urllib.parse import urlencode

from tests.support.ports import free_ports
from tests.support.processes import ChildProcess
from tests.support.waiting import wait_until

HOST = "127.0.0.1"
SECONDS = 30.0


def missing() -> str:
    """Return what these tests lack on this machine; empty if they can run. `make prometheus` installs it."""
    return ", ".join(name for name in ("prometheus", "promtool") if shutil.which(name) is None)


class Series(NamedTuple):
    """A time series of an answer: (Unix seconds, value) in their order."""

    labels: Mapping[str, str]
    points: list[tuple[float, float]]


class Prometheus:
    """Context manager: a Prometheus that scrapes a port of this machine for each job, every second."""

    def __init__(self, jobs: Mapping[str, int]) -> None:
        self._jobs = jobs
        self._folder = tempfile.TemporaryDirectory(prefix="pyproducer-prometheus-")
        (self.port,) = free_ports(1)
        self._process: ChildProcess | None = None

    def __enter__(self) -> Self:
        home = Path(self._folder.name)
        scraped = [
            {"job_name": job, "static_configs": [{"targets": [f"{HOST}:{port}"]}]} for job, port in self._jobs.items()
        ]
        config = home / "prometheus.yml"  # JSON is YAML
        config.write_text(json.dumps({"global": {"scrape_interval": "1s"}, "scrape_configs": scraped}))
        command = [str(shutil.which("prometheus")), f"--config.file={config}", f"--storage.tsdb.path={home / 'data'}"]
        self._process = process = ChildProcess(
            [*command, f"--web.listen-address={HOST}:{self.port}"], home / "output.log"
        )
        try:
            wait_until(self._is_ready, "Prometheus", seconds=SECONDS, more=process.tail, ended=process.has_ended)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()
        self._folder.cleanup()

    def scraped(self) -> set[str]:
        """Return the jobs whose last scrape succeeded."""
        return {series.labels["job"] for series in self.query("up == 1")}

    def query(self, expression: str) -> list[Series]:
        """Return the answer of now: one point in each series.

        Raises:
            ValueError: Prometheus does not understand the expression.
        """
        found = self._get("/api/v1/query", query=expression)
        return [Series(each["metric"], [_point(each["value"])]) for each in found["data"]["result"]]

    def query_range(self, expression: str, start: float, end: float, step: float) -> list[Series]:
        """Return the answers from `start` to `end` in Unix seconds, each `step` seconds. Raises: as `query`."""
        found = self._get("/api/v1/query_range", query=expression, start=start, end=end, step=step)
        return [Series(each["metric"], [_point(one) for one in each["values"]]) for each in found["data"]["result"]]

    def _is_ready(self) -> bool:
        try:
            return self._request("/-/ready")[0] == 200
        except (OSError, HTTPException):
            return False

    def _get(self, path: str, **parameters: object) -> Any:
        status, body = self._request(f"{path}?{urlencode(parameters)}")
        if status != 200:
            raise ValueError(f"{parameters}: {body.decode(errors='replace')}")
        return json.loads(body)

    def _request(self, path: str) -> tuple[int, bytes]:
        connection = HTTPConnection(HOST, self.port, timeout=SECONDS)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()


def _point(pair: list[Any]) -> tuple[float, float]:
    return float(pair[0]), float(pair[1])
