"""Fixtures shared by all tests: real Kafka, the embedded broker, Spark, fresh topic names.

Everything dear is imported and started on first use, once per session, and ends with it: the tests of `unit/` run without Spark
and librdkafka. Tests get the markers `kafka` and `spark` from the fixtures they use.
"""

from __future__ import annotations

import gc
import importlib.util
import logging
import os
import re
import signal
import sys
import threading
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest
from hypothesis import settings

from spark_producer.common import redaction
from tests.support.grouping import (
    KAFKA_FIXTURES,
    UNIT,
    clusters_of,
    fixtures_of,
    given_group,
    group_of,
    place_in_run,
    used_by,
)
from tests.support.last_uses import end_fixture, last_uses

# As in the Makefile: without bytecode each process of pytest rewrites all tests, and each child compiles its imports.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.distribution import Wheel
    from tests.support.kafka_cluster import KafkaCluster
    from tests.support.proxy import FaultProxy
    from tests.support.schema_registry import SchemaRegistry

BROKERS = [
    pytest.param("embedded"),
    pytest.param("kafka-3.9", marks=pytest.mark.kafka),
    pytest.param("kafka-4", marks=pytest.mark.kafka),
]
KAFKA_4_FIRST = [
    pytest.param("kafka-4", marks=pytest.mark.kafka),
    pytest.param("embedded", marks=pytest.mark.campaign),
    pytest.param("kafka-3.9", marks=pytest.mark.kafka),
]
"""For tests whose minutes are those of Spark, where other tests show what differs between the brokers."""
STRICT_BROKERS = ["strict_broker", "kafka_39", "kafka_4"]
"""Fixtures of brokers that create no topics by themselves, for such tests."""
MIN_REPORTED_SECONDS = 60.0
"""Shorter runs print no table of the slowest files."""

# The same cases in every run, and no clock: findings depend on the code alone. A run with `--slow` tries three times as
# many. HYPOTHESIS_PROFILE=explore looks for new cases, with a database of those that failed.
settings.register_profile("quick", deadline=None, derandomize=True, database=None, max_examples=30)
settings.register_profile("steady", deadline=None, derandomize=True, database=None)
settings.register_profile("explore", deadline=None)

# What a script starts in the background ignores Ctrl-C, and so would the processes of tests that are to be ended by it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

if importlib.util.find_spec("pyspark"):
    from tests.support.class_archives import spark_options

    # Of whatever starts Spark: this session, programs and jobs that tests run in processes of their own, the notebooks.
    os.environ.setdefault("SPARK_SUBMIT_OPTS", spark_options())


OWN_RUNS = ("campaign", "nightly")
"""Marks of tests that run only with `-m` and this word, as `make campaigns` and `make nightly` do.
A test with both is part of a campaign."""
TWINS = {"kafka_39", "kafka_39_through_proxy", "_secured_39", "kafka-3.9"}
"""CI runs a test of two versions of Kafka with the newest one, and `make nightly` with the other."""
LEFT_OUT = pytest.StashKey[Counter[str]]()
"""The number of tests that this run leaves out, by the way to run them."""
LAST_USES = pytest.StashKey[dict[pytest.Item, set[str]]]()
"""The clusters that end after a test."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--slow`: the slow tests of `unit/` too, which `make test` runs."""
    parser.addoption("--slow", action="store_true", help="run the slow tests of tests/unit as well")


def pytest_sessionstart() -> None:
    """Collect no garbage while tests are collected: nearly all of that million objects stays."""
    gc.disable()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Find out after which tests clusters end, and take what was collected out of the garbage collector.

    It would go through all of it again and again. One process that runs all groups has each cluster once.
    """
    several = hasattr(session.config, "workerinput")
    session.config.stash[LAST_USES] = last_uses(session.items, clusters_of, given_group if several else lambda _: None)
    gc.collect()
    gc.freeze()
    gc.set_threshold(5_000)
    gc.enable()


def pytest_configure(config: pytest.Config) -> None:
    """Choose how many cases the tests with random data try."""
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady" if config.option.slow else "quick"))


@pytest.fixture(autouse=True)
def no_secret_sent() -> None:
    """Forget the secrets of other tests: they are not redacted in this one."""
    redaction._sent_secrets = redaction.SentSecrets()


@pytest.fixture(autouse=True, scope="session")
def no_idle_connections() -> Iterator[None]:
    """The connections that reads of this process have left open are closed when the run ends."""
    yield
    if read_ranges := sys.modules.get("spark_producer.consumer.read_ranges"):
        read_ranges.CONNECTIONS.clear()


class Broker(Protocol):
    """The part of a broker's interface that tests of the protocol need."""

    @property
    def bootstrap_servers(self) -> str:
        """Addresses, comma separated."""

    def create_topic(self, name: str, partitions: int) -> None:
        """Create a topic; it can be written to when this returns."""


def local_broker(**options: Any) -> Any:
    """The embedded broker, imported on first use: tests of the lower packages run without it."""
    return importlib.import_module("spark_producer.broker").LocalBroker(**options)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark tests by the fixtures that they use, and leave out what has runs of its own.

    When a run has several processes, tests that use the same dear fixture stay together in one of them.
    """
    for item in items:
        item.extra_keyword_matches |= {test_id.lower() for test_id in covered_ids(item)}
        if used_by(item) & TWINS:
            item.add_marker(pytest.mark.nightly)
    left_out = {item: way for item in items if (way := own_run(config, item))}
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=list(left_out))
    config.stash[LEFT_OUT] = Counter(left_out.values())
    for item in items:
        names = fixtures_of(item)
        if names & KAFKA_FIXTURES:
            item.add_marker(pytest.mark.kafka)
        if "spark" in names:
            item.add_marker(pytest.mark.spark)
        group = group_of(item, names)
        if group and not item.get_closest_marker("xdist_group"):
            item.add_marker(pytest.mark.xdist_group(group))
    items.sort(key=place_in_run)


def own_run(config: pytest.Config, item: pytest.Item) -> str | None:
    """Return the way to run a test that this run leaves out; None if it is part of this run."""
    own = next((mark for mark in OWN_RUNS if item.get_closest_marker(mark)), "")
    if own not in config.option.markexpr:
        return f"-m {own}"
    slow = UNIT in item.path.parents and item.get_closest_marker("slow")
    named = "::" in "".join(config.invocation_params.args) or config.option.keyword or config.option.markexpr
    return "--slow" if slow and not (config.option.slow or named) else None


def covered_ids(item: pytest.Item) -> Iterator[str]:
    """The ids of tests/ids.md in the marks of a test: `pytest -k bp4` runs all tests of one."""
    for mark in item.iter_markers("covers"):
        for cell in mark.args:
            first, _, last = cell.partition("–")
            family = first.rstrip("0123456789")
            numbers = range(int(first.removeprefix(family)), int(last.removeprefix(family)) + 1) if last else ()
            yield from (f"{family}{number}" for number in numbers) if last else (first,)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Give `caplog` its format back, which PySpark makes JSON for all later tests.

    pytest adds the handler of `caplog` to loggers that do not propagate, and PySpark's add no handler without that.
    """
    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        if isinstance(logger := logging.root.manager.loggerDict.get(name), logging.Logger):
            logger.propagate = True
    plugin: Any = item.config.pluginmanager.get_plugin("logging-plugin")
    plugin.caplog_handler.setFormatter(plugin.formatter)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """End the clusters that no later test uses."""
    for name in sorted(item.config.stash[LAST_USES].get(item, ())):
        end_fixture(item, name)


def pytest_report_collectionfinish(config: pytest.Config) -> list[str]:
    """Say why a test did not run, to those who named it."""
    left_out = config.stash.get(LEFT_OUT, Counter())
    return [f"{number} tests run only with {way}" for way, number in sorted(left_out.items())]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """After a run of more than a minute: what each folder took, fixtures included, summed up over all processes."""
    seconds: dict[str, float] = defaultdict(float)
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                seconds[str(Path(report.nodeid.partition("::")[0]).parent)] += report.duration
    if sum(seconds.values()) > MIN_REPORTED_SECONDS:
        terminalreporter.section("minutes by folder")
        for folder, took in sorted(seconds.items(), key=lambda entry: -entry[1]):
            terminalreporter.write_line(f"{took / 60:5.1f}  {folder}")


@pytest.fixture(scope="session")
def kafka_39() -> Iterator[KafkaCluster]:
    """One node of Kafka 3.9."""
    from tests.support.kafka_cluster import KafkaCluster
    from tests.support.kafka_node import KAFKA_39

    with KafkaCluster(KAFKA_39) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def kafka_4() -> Iterator[KafkaCluster]:
    """One node of the newest Kafka."""
    from tests.support.kafka_cluster import KafkaCluster
    from tests.support.kafka_node import KAFKA_4

    with KafkaCluster(KAFKA_4) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def kafka_three() -> Iterator[KafkaCluster]:
    """Three nodes of the newest Kafka."""
    from tests.support.kafka_cluster import KafkaCluster
    from tests.support.kafka_node import KAFKA_4

    with KafkaCluster(KAFKA_4, nodes=3) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def registry() -> Iterator[SchemaRegistry]:
    """A real Schema Registry: Apicurio, which takes only schemas that fit the older ones."""
    from tests.support.schema_registry import SchemaRegistry

    with SchemaRegistry() as server:
        yield server


@pytest.fixture(scope="session")
def embedded_broker() -> Iterator[Any]:
    """The package's own broker."""
    with local_broker() as broker:
        yield broker


@pytest.fixture(scope="session")
def strict_broker() -> Iterator[Any]:
    """The embedded broker with `auto.create.topics.enable=false`."""
    with local_broker(auto_create_topics=False) as broker:
        yield broker


@pytest.fixture(scope="session", params=BROKERS)
def broker(request: pytest.FixtureRequest) -> Broker:
    """Every broker there is, one after the other."""
    return broker_named(request)


def broker_named(request: pytest.FixtureRequest) -> Broker:
    """The broker that the parameter of a fixture names."""
    fixtures = {"embedded": "embedded_broker", "kafka-3.9": "kafka_39", "kafka-4": "kafka_4"}
    found: Broker = request.getfixturevalue(fixtures[request.param])
    return found


@dataclass
class ProxiedBroker:
    """A broker that clients reach only through a proxy."""

    proxy: FaultProxy
    broker: Broker

    @property
    def bootstrap_servers(self) -> str:
        """Address of the proxy."""
        return self.proxy.address

    def create_topic(self, name: str, partitions: int) -> None:
        """Create a topic."""
        self.broker.create_topic(name, partitions)


@pytest.fixture(scope="session")
def embedded_through_proxy() -> Iterator[ProxiedBroker]:
    """The package's own broker and a proxy."""
    from tests.support.proxy import FaultProxy

    with FaultProxy() as proxy, local_broker(advertised=(proxy.host, proxy.port)) as broker:
        proxy.target = (proxy.host, broker.port)
        yield ProxiedBroker(proxy, broker)


@pytest.fixture(scope="session")
def kafka_through_proxy() -> Iterator[ProxiedBroker]:
    """One node of the newest Kafka and a proxy."""
    from tests.support.kafka_cluster import KafkaCluster
    from tests.support.kafka_node import KAFKA_4
    from tests.support.proxy import FaultProxy

    with FaultProxy() as proxy, KafkaCluster(KAFKA_4, advertised_ports=[proxy.port]) as cluster:
        proxy.target = (proxy.host, cluster.ports[1].client)
        yield ProxiedBroker(proxy, cluster)


@pytest.fixture(scope="session")
def kafka_39_through_proxy() -> Iterator[ProxiedBroker]:
    """One node of Kafka 3.9 and a proxy."""
    from tests.support.kafka_cluster import KafkaCluster
    from tests.support.kafka_node import KAFKA_39
    from tests.support.proxy import FaultProxy

    with FaultProxy() as proxy, KafkaCluster(KAFKA_39, advertised_ports=[proxy.port]) as cluster:
        proxy.target = (proxy.host, cluster.ports[1].client)
        yield ProxiedBroker(proxy, cluster)


@pytest.fixture(params=[pytest.param("embedded"), pytest.param("kafka-4", marks=pytest.mark.kafka)])
def proxied(request: pytest.FixtureRequest) -> Iterator[ProxiedBroker]:
    """Brokers behind a proxy that is sound at the start of each test; its `requests` start at zero.

    Tests for which the version of the broker matters ask for all BROKERS, by indirect parametrisation.
    """
    fixtures = {
        "embedded": "embedded_through_proxy",
        "kafka-3.9": "kafka_39_through_proxy",
        "kafka-4": "kafka_through_proxy",
    }
    found: ProxiedBroker = request.getfixturevalue(fixtures[request.param])
    found.proxy.requests.clear()
    yield found
    found.proxy.heal()


@pytest.fixture(scope="session")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked source archive."""
    from tests.support.distribution import build_sdist

    return build_sdist(tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="session")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Wheel:
    """Built from the source archive, with a compiler."""
    from tests.support.distribution import build_wheel, quick_compiler

    compiler = quick_compiler(tmp_path_factory.mktemp("compiler"))
    return build_wheel(sdist, tmp_path_factory.mktemp("wheel"), CC=compiler)


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic name that no other test uses; the topic itself is not created."""
    return re.sub(r"[^a-zA-Z0-9._-]+", "-", request.node.name)[:80].strip("-") + f"-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def untraced() -> Iterator[None]:
    """For tests that do the same thousands of times, and take three times as long when coverage looks on."""
    tracer, of_threads = sys.gettrace(), threading.gettrace()
    sys.settrace(None)
    threading.settrace(None)
    yield
    sys.settrace(tracer)
    threading.settrace(of_threads)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A quiet local Spark with two task slots."""
    from pyspark.sql import SparkSession

    log_settings = Path(__file__).parent / "support" / "log4j2.properties"
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    session = (
        SparkSession.builder.master("local[2]")
        .appName("pyproducer-tests")
        .config("spark.driver.memory", "2g")
        .config("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={log_settings}")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        # a machine that is stopped for two minutes must not cost the only executor
        .config("spark.network.timeout", "600s")
        .getOrCreate()
    )
    yield session
    session.stop()
