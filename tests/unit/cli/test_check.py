"""`pyproducer check`, COM23: what is wrong, what to do, and the exit code."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from spark_producer.admin import checks
from spark_producer.broker import LocalBroker
from spark_producer.cli.entry import main
from spark_producer.errors import UnsupportedVersion
from spark_producer.protocol import API_VERSIONS, DESCRIBE_CONFIGS, METADATA, AnyApi
from spark_producer.protocol.messages import (
    ApiVersion,
    ApiVersionsResponse,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from spark_producer.protocol.messages.cluster import OPERATIONS_UNKNOWN
from tests.fakes.scripted_client import ScriptedClient
from tests.fakes.scripted_server import Peer, ScriptedServer
from tests.support.ports import free_ports

VERSIONS = ApiVersionsResponse(0, (ApiVersion(3, 0, 13), ApiVersion(0, 0, 12), ApiVersion(22, 0, 5)))
WRITE_AND_DESCRIBE = 1 << 4 | 1 << 8


def states(capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    page = json.loads(capsys.readouterr().out)
    assert page["ok"] == all(one["state"] != "failed" for one in page["findings"])
    return {one["name"]: one["state"] for one in page["findings"]}


@pytest.mark.covers("COM23")
def test_a_sound_cluster(embedded_broker: LocalBroker, topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    embedded_broker.create_topic(topic, 3)
    arguments = ["--bootstrap-servers", embedded_broker.bootstrap_servers, "--topic", topic]
    assert main(["check", *arguments]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"ok       connection: {arguments[1]} answers: 1 broker ({arguments[1]})"
    assert f"ok       topic: {topic!r} has 3 partitions" in lines
    assert main(["check", *arguments, "--json"]) == 0
    assert set(states(capsys).values()) <= {"ok", "unknown"}


@pytest.mark.covers("COM23")
@pytest.mark.usefixtures("short_timeouts")
def test_a_port_without_a_listener(capsys: pytest.CaptureFixture[str]) -> None:
    (port,) = free_ports(1)
    assert main(["check", "--bootstrap-servers", f"127.0.0.1:{port}", "--timeout", "1"]) == 1
    reported = capsys.readouterr().out
    assert reported.startswith("failed   connection: no broker could be reached within 0.1 s")
    named = "check the bootstrap servers (kafka.bootstrap.servers, --bootstrap-servers), that the brokers run"
    assert f"\n         what to do: {named}, and firewalls\n" in reported


@pytest.mark.covers("COM23")
def no_token() -> None:
    """A token provider whose result is no token."""


def test_without_a_token_there_is_no_connection(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "client.properties"
    provider = f"{__name__}:no_token"
    file.write_text(f"security.protocol=SASL_SSL\nsasl.mechanism=OAUTHBEARER\noauthTokenProvider={provider}\n")
    arguments = ["check", "--bootstrap-servers", "127.0.0.1:1", "--command-config", str(file), "--json"]
    assert main(arguments) == 1
    assert states(capsys) == {"login": "failed"}


def test_a_port_where_no_broker_listens(capsys: pytest.CaptureFixture[str]) -> None:
    def says_something_else(peer: Peer) -> None:
        peer.read()
        peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with ScriptedServer(says_something_else) as server:
        assert main(["check", "--bootstrap-servers", f"127.0.0.1:{server.port}", "--timeout", "1", "--json"]) == 1
    assert states(capsys) == {"connection": "failed"}


@pytest.mark.covers("COM23")
def test_a_topic_that_is_not_there_is_not_made(
    embedded_broker: LocalBroker, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["check", "--bootstrap-servers", embedded_broker.bootstrap_servers, "--topic", topic]
    assert main(arguments) == 1
    reported = capsys.readouterr().out.splitlines()
    assert reported[-2:] == [
        f"failed   topic: UNKNOWN_TOPIC_OR_PARTITION (3) for topic {topic!r}",
        f"         what to do: create the topic (`pyproducer topics create {topic} --partitions 4`), or correct its name",
    ]
    assert topic not in embedded_broker.topics()


@pytest.mark.covers("COM23")
def test_the_topic_that_was_meant_is_named(
    embedded_broker: LocalBroker, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    embedded_broker.create_topic(topic, 1)
    assert main(["check", "--bootstrap-servers", embedded_broker.bootstrap_servers, "--topic", f"{topic}s"]) == 1
    assert f"or correct its name (did you mean {topic!r}?)" in capsys.readouterr().out


@pytest.mark.covers("COM23")
def test_bad_options_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--bootstrap-servers", "nonsense"]) == 1
    assert len(capsys.readouterr().err.splitlines()) == 1


class CheckedCluster(ScriptedClient):
    """Three brokers and topic `t`; a test changes what they answer."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = [MetadataResponsePartition(0, at, 1, 0, (1, 2, 3), (1, 2, 3)) for at in range(8)]
        self.min_insync_replicas: str | None = "2"
        self.operations = WRITE_AND_DESCRIBE
        self.topic_error = 0
        self.cluster_error = 0
        self.unreachable: set[int] = set()
        self.nodes: tuple[int, ...] = (1, 2, 3)
        self.scripts[METADATA.name] = lambda _: self.metadata(["t"])
        self.scripts[DESCRIBE_CONFIGS.name] = self._configs
        self.answers(API_VERSIONS, VERSIONS)

    def metadata(
        self, topics: Sequence[str], deadline: float = 0.0, node: int | None = None, *, with_rights: bool = False
    ) -> MetadataResponse:
        brokers = tuple(MetadataResponseBroker(node, f"kafka-{node}", 9092) for node in self.nodes)
        partitions = () if self.topic_error else tuple(self.rows)
        topic = MetadataResponseTopic(
            self.topic_error,
            "t",
            partitions=partitions,
            topic_authorized_operations=self.operations if with_rights else OPERATIONS_UNKNOWN,
        )
        return MetadataResponse(brokers=brokers, topics=(topic,), error_code=self.cluster_error)

    def request_each(self, api: AnyApi, body: Any, nodes: Sequence[int]) -> dict[int, Any]:
        far = {
            node: UnsupportedVersion(f"broker {node} is far away. What to do: build a road.")
            for node in self.unreachable
        }
        return super().request_each(api, body, nodes) | far

    def _configs(self, _: object) -> DescribeConfigsResponse:
        if self.min_insync_replicas is None:
            return DescribeConfigsResponse(results=(DescribeConfigsResult(29),))
        entry = DescribeConfigsResourceResult("min.insync.replicas", self.min_insync_replicas)
        return DescribeConfigsResponse(results=(DescribeConfigsResult(0, configs=(entry,)),))


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> CheckedCluster:
    made = CheckedCluster()
    monkeypatch.setattr(checks, "BlockingClient", lambda *_, **__: made)
    return made


def check(capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    code = main(["check", "--topic", "t"])
    return code, capsys.readouterr().out


@pytest.mark.covers("COM23")
def test_all_is_well(cluster: CheckedCluster, capsys: pytest.CaptureFixture[str]) -> None:
    code, text = check(capsys)
    assert code == 0
    assert [line.split()[:2] for line in text.splitlines()] == [
        ["ok", f"{name}:"]
        for name in (
            "connection", "tls", "login", "brokers", "versions", "topic", "leaders", "min.insync.replicas", "rights",
        )
    ]  # fmt: skip


@pytest.mark.covers("COM23")
def test_partitions_without_leader(cluster: CheckedCluster, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.rows = [row._replace(leader_id=-1, isr_nodes=()) for row in cluster.rows[:7]] + cluster.rows[7:]
    code, text = check(capsys)
    assert code == 1
    assert "failed   leaders: partitions 0, 1, 2, 3, 4 and 2 more of 8 has no leader" in text


@pytest.mark.covers("COM23")
def test_too_few_replicas_in_sync(cluster: CheckedCluster, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.rows[3] = cluster.rows[3]._replace(isr_nodes=(1,))
    code, text = check(capsys)
    assert code == 1
    assert "failed   min.insync.replicas: partition 3: fewer in-sync replicas than min.insync.replicas=2" in text
    cluster.min_insync_replicas = "1"
    assert check(capsys)[0] == 0, "with one that is in sync it would work"


@pytest.mark.covers("COM23")
def test_what_can_be_lost_is_a_warning(cluster: CheckedCluster, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.min_insync_replicas = "1"
    code, text = check(capsys)
    assert code == 0
    assert "warning  min.insync.replicas: min.insync.replicas=1 with 3 replicas: the loss of one broker can" in text
    cluster.min_insync_replicas = None
    assert (
        "unknown  min.insync.replicas: not visible to this user\n         what to do: grant DESCRIBE_CONFIGS"
        in check(capsys)[1]
    )


@pytest.mark.covers("COM23")
def test_rights(cluster: CheckedCluster, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.operations = 1 << 8
    code, text = check(capsys)
    assert code == 1
    assert "failed   rights: user 'ANONYMOUS' (no login) lacks WRITE on the topic" in text
    assert "--operation Write --topic t`" in text
    cluster.topic_error = 29
    code, text = check(capsys)
    assert code == 1
    assert "failed   rights: TOPIC_AUTHORIZATION_FAILED (29) for topic 't'" in text


@pytest.mark.covers("COM23")
def test_brokers_that_cannot_be_reached_and_versions(
    cluster: CheckedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.unreachable = {2}
    cluster.answers(API_VERSIONS, ApiVersionsResponse(0, (ApiVersion(3, 0, 13), ApiVersion(0, 0, 2))))
    code, text = check(capsys)
    assert code == 1
    assert "failed   brokers: broker 2: broker 2 is far away\n         what to do: build a road\n" in text
    assert "failed   versions: no common version of Produce, InitProducerId" in text


@pytest.mark.covers("COM23")
@pytest.mark.parametrize("broken", ["no brokers", "refused", "no partitions", "an unknown leader"])
def test_answers_with_which_no_write_would_work(
    cluster: CheckedCluster, capsys: pytest.CaptureFixture[str], broken: str
) -> None:
    if broken == "no brokers":
        cluster.nodes = ()
    elif broken == "refused":
        cluster.cluster_error = 31
    elif broken == "no partitions":
        cluster.rows = []
    else:
        cluster.rows[2] = cluster.rows[2]._replace(leader_id=9)
    code, text = check(capsys)
    assert code == 1
    (last,) = [line for line in text.splitlines() if line.startswith("failed ")]
    assert {
        "no brokers": "brokers: the cluster reports no brokers",
        "refused": "brokers: CLUSTER_AUTHORIZATION_FAILED (31)",
        "no partitions": "topic: LEADER_NOT_AVAILABLE (5) for topic 't'",
        "an unknown leader": "leaders: partition 2 of 8 has no leader",
    }[broken] in last


@pytest.mark.covers("COM23")
@pytest.mark.parametrize("least", ["many", "", "9" * 5000, "\x1b[2J"])
def test_a_setting_that_is_no_number_is_not_known(
    cluster: CheckedCluster, capsys: pytest.CaptureFixture[str], least: str
) -> None:
    cluster.min_insync_replicas = least
    code, text = check(capsys)
    assert code == 0
    (line,) = [line for line in text.splitlines() if "min.insync.replicas" in line]
    assert line.startswith("unknown  min.insync.replicas: the broker reports '")
    assert line.isprintable()
    assert len(line) < 500
