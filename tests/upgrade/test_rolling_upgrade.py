"""A stream that an earlier version began goes on with this one, after a death in a micro-batch; and back, or refused."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Broker
from tests.support.processes import ChildProcess
from tests.support.read_back import read_topic
from tests.support.waiting import wait_until
from tests.upgrade.versions import ROOT, VERSIONS, Version, tree_of

pytestmark = [pytest.mark.nightly, pytest.mark.spark, pytest.mark.timeout(1300)]
SECONDS = 600.0
PLACES = ("task.prepared", "control.produced", "control.ended", "task.ended")
SMALL: dict[str, Any] = {}
LARGE: dict[str, Any] = {"exactlyOnceInlineBytes": "0"}
"""Rows of the driver, and transactions of tasks; by the name of the option that 0.1.0 had, which is deprecated now."""
CASES = [pytest.param(version, place, id=f"{version.day}-{place}") for version in VERSIONS for place in PLACES]
_numbers = count()


@pytest.fixture(scope="session")
def trees(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("trees")


def play(folder: Path, tree: Path, until: int, options: dict[str, Any], kill: str = "", **more: Any) -> str:
    """Run the stream with the code of a tree until micro-batch `until` is committed, or it is killed; return its output."""
    number = next(_numbers)
    job, output, reached = (folder / f"{number}.{end}" for end in ("json", "log", "reached"))
    job.write_text(json.dumps({"options": options, "checkpoint": str(folder / "checkpoint"), "until": until, **more}))
    site = [str(ROOT / "tests" / "upgrade" / "site")] if kill else []
    environment = {
        "PYTHONPATH": os.pathsep.join([*site, str(tree)]),
        "PYTHONSAFEPATH": "1",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "UPGRADE_KILL": f"{kill}:{reached}" if kill else "",
        "PYPRODUCER_FAILPOINT": "sitecustomize:reached" if kill else "",
    }
    program = str(ROOT / "tests" / "upgrade" / "stream_program.py")
    process = ChildProcess([sys.executable, program, str(job)], output, environment)
    wait_until(process.has_ended, "the stream ends", seconds=SECONDS, more=process.tail)
    assert reached.exists() == bool(kill), output.read_text()[-3000:]
    return output.read_text()


def committed(broker: Broker, topic: str) -> Counter[int]:
    found = read_topic(broker.bootstrap_servers, topic, client="confluent", isolation="read_committed")
    return Counter(int(row.value or b"") for row in found)


@pytest.mark.parametrize(("version", "place"), CASES)
def test_a_stream_goes_on_after_a_death_in_the_midst_of_a_micro_batch(
    embedded_broker: Broker, topic: str, tmp_path: Path, trees: Path, version: Version, place: str
) -> None:
    embedded_broker.create_topic(topic, 2)
    way = LARGE if place.startswith("task") else SMALL
    options = {
        "kafka.bootstrap.servers": embedded_broker.bootstrap_servers,
        "topic": topic,
        "exactlyOnceId": topic,
        **way,
    }
    play(tmp_path, tree_of(version, trees), 99, options, kill=f"{place}:2")
    done = sorted(int(path.name) for path in (tmp_path / "checkpoint" / "commits").glob("[0-9]*"))
    begun = sorted(int(path.name) for path in (tmp_path / "checkpoint" / "offsets").glob("[0-9]*"))
    assert done != begun, "the death came between two micro-batches"
    play(tmp_path, ROOT, begun[-1] + 1, options)
    found = committed(embedded_broker, topic)
    assert set(found.values()) == {1}
    assert set(range(10 * (begun[-1] + 2))) <= set(found)
