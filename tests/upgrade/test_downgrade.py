"""An earlier version says what it cannot read, before it writes anything. Its own code is run."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from spark_producer.broker import BrokerSettings, LocalBroker
from spark_producer.errors import CorruptRecord
from spark_producer.exactly_once import driver
from spark_producer.exactly_once.cluster import record_json
from tests.support.filled_tasks import batch, committed, inline, settings
from tests.support.read_confluent import end_offsets
from tests.upgrade.versions import VERSIONS, Version, tree_of

pytestmark = pytest.mark.nightly
SECONDS = 120
BEGIN = """
import sys
from spark_producer.exactly_once import driver
from tests.support import filled_tasks
sink = getattr(driver, "SinkSettings", None) or driver.Sink
try:
    print("begun", driver.begin(sink("orders", filled_tasks.settings(sys.argv[1]))).last.last_done)
except Exception as error:
    print(type(error).__name__, error)
"""
OPEN = """
import sys
from spark_producer.broker import BrokerSettings, LocalBroker
try:
    with LocalBroker(sys.argv[1], settings=BrokerSettings(storage_engine=sys.argv[2])) as broker:
        print("opened", sorted(broker.topics()))
except Exception as error:
    print(type(error).__name__, error)
"""


@pytest.fixture(scope="session")
def trees(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("trees")


def run(version: Version, trees: Path, program: str, *arguments: str) -> str:
    """Return what a program prints with the code of an earlier version."""
    environment = {**os.environ, "PYTHONPATH": str(tree_of(version, trees)), "PYPRODUCER_KERNEL": "portable"}
    command = [sys.executable, "-P", "-c", program, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.stdout, done.stderr
    return done.stdout


@pytest.mark.parametrize("version", VERSIONS, ids=[each.day for each in VERSIONS])
def test_control_records_of_today_are_read_or_refused_before_anything_is_written(
    trees: Path, tmp_path: Path, version: Version
) -> None:
    with LocalBroker(tmp_path / "data", auto_create_topics=False) as broker:
        broker.create_topic("orders", 1)
        sink = driver.SinkSettings("orders", settings(broker.bootstrap_servers))
        driver.commit(sink, [inline(driver.begin(sink), 0, batch("orders", 0, "a"))], 0)
        driver.close_all()
        before = ends(broker)
        printed = run(version, trees, BEGIN, broker.bootstrap_servers)
        assert ends(broker) == before
        if version.control == record_json.VERSION:
            assert printed == "begun 0\n"
        else:
            assert printed.startswith(
                f"ExactlyOnceError sink 'orders': its control record has version {record_json.VERSION}, and this pyproducer "
            )
            assert "a newer one wrote it" in printed
        assert committed(broker, "orders") == ["a"]


def ends(broker: LocalBroker) -> list[dict[int, int]]:
    return [end_offsets(broker.bootstrap_servers, topic) for topic in ("orders", "__pyproducer_commits")]


@pytest.mark.parametrize("engine", ["segments", "tiered"])
@pytest.mark.parametrize("version", VERSIONS, ids=[each.day for each in VERSIONS])
def test_a_directory_of_today_is_opened_or_refused_by_an_earlier_version(
    trees: Path, tmp_path: Path, version: Version, engine: str
) -> None:
    """Those before 28 November refuse it: fields of the state, the format of the catalog, the mark of the journal are unknown."""
    data = tmp_path / "data"
    write_some(data, engine)
    before = hashes(data)
    printed = run(version, trees, OPEN, str(data), engine)
    if version is VERSIONS[-1]:
        assert printed == "opened ['__pyproducer_commits', 'orders']\n"
    else:
        assert printed.startswith(("CorruptRecord", "JournalDamaged"))
        assert hashes(data) == before
    with LocalBroker(data) as broker:
        assert committed(broker, "orders") == ["a"]


def write_some(data: Path, engine: str) -> None:
    with LocalBroker(data, settings=BrokerSettings(storage_engine=engine)) as broker:
        broker.create_topic("orders", 1)
        sink = driver.SinkSettings("orders", settings(broker.bootstrap_servers))
        driver.commit(sink, [inline(driver.begin(sink), 0, batch("orders", 0, "a"))], 0)
        driver.close_all()


def raise_format(data: Path) -> dict[Path, str]:
    """Write the directory's format as a later version would; return the hashes of all files."""
    file = data / "broker.json"
    state = {**json.loads(file.read_text()), "format": 9, "something": "new"}
    state.pop("crc32c")
    file.write_text(json.dumps(state))
    return hashes(data)


def hashes(data: Path) -> dict[Path, str]:
    files = (path for path in data.rglob("*") if path.is_file())
    return {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.mark.parametrize("engine", ["segments", "tiered"])
@pytest.mark.parametrize("version", VERSIONS, ids=[each.day for each in VERSIONS])
def test_a_directory_in_a_later_format_is_refused_by_an_earlier_version(
    trees: Path, tmp_path: Path, version: Version, engine: str
) -> None:
    data = tmp_path / "data"
    write_some(data, engine)
    before = raise_format(data)
    printed = run(version, trees, OPEN, str(data), engine)
    assert printed.startswith(("CorruptRecord", "JournalDamaged"))
    assert hashes(data) == before


@pytest.mark.parametrize("engine", ["segments", "tiered"])
def test_a_directory_in_a_later_format_is_refused_before_anything_is_written(tmp_path: Path, engine: str) -> None:
    data = tmp_path / "data"
    write_some(data, engine)
    before = raise_format(data)
    with pytest.raises(
        CorruptRecord, match=r"it has format 9, .* knows format 1\. A newer pyproducer wrote it"
    ) as refused:
        LocalBroker(data)
    assert "Restore" not in str(refused.value), "a backup has this format, too"
    assert hashes(data) == before
