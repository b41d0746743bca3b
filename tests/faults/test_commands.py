"""Commands whose broker answers garbage, in part, or not as any broker would: an error in one line, and no wait for more."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spark_producer.admin import BlockingClient
from spark_producer.cli.entry import main
from spark_producer.protocol import (
    API_VERSIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    DESCRIBE_CONFIGS,
    FETCH,
    LIST_OFFSETS,
    METADATA,
    AnyApi,
    RequestFrame,
    messages,
)
from tests.fakes.hurry import RunningClock
from tests.fakes.scripted_server import ALL_VERSIONS, Peer, Script, ScriptedServer

Request = RequestFrame[Any, Any]
Harm = Callable[[Peer, Request], None]
SECONDS = "2"
MANY = 300
CONNECTED = [
    (["check", "--topic", "t"], METADATA),
    (["topics", "list"], METADATA),
    (["topics", "describe", "t"], LIST_OFFSETS),
    (["topics", "create", "t"], CREATE_TOPICS),
    (["topics", "delete", "t", "--yes"], DELETE_TOPICS),
    (["tail", "t", "--from-beginning"], LIST_OFFSETS),
    (["tail", "t", "--from-beginning"], FETCH),
    (["bench", "t", "--records", "1"], METADATA),
]


def frame(content: bytes) -> Harm:
    return lambda peer, request: peer.send(struct.pack(">ii", len(content) + 4, request.correlation_id) + content)


def half_and_reset(peer: Peer, request: Request) -> None:
    peer.send(struct.pack(">ii", 1000, request.correlation_id) + bytes(10))
    peer.reset()


def an_impossible_length(peer: Peer, _: Request) -> None:
    peer.send(b"\x7f\xff\xff\xff" + bytes(100))
    peer.wait_for_close()


HARM: dict[str, Harm] = {
    "reset": lambda peer, _: peer.reset(),
    "half": half_and_reset,
    "zeros": frame(b"\x00" * 64),
    "ones": frame(b"\xff" * 64),
    "large lengths": frame(b"\x7f" * 64),
    "length": an_impossible_length,
    "nothing": frame(b""),
}


def harming(api: AnyApi, harm: Harm, servers: list[ScriptedServer], partitions: int = 1) -> Script:
    """A broker that does harm to requests of one kind, and answers others well."""

    def script(peer: Peer) -> None:
        while True:
            request = peer.read()
            if request.api.key == api.key:
                harm(peer, request)
            else:
                peer.answer(request, answer(request, servers[0], partitions))

    return script


def answer(request: Request, server: ScriptedServer, partitions: int) -> Any:
    if request.api is API_VERSIONS:
        return ALL_VERSIONS
    if request.api is METADATA:
        rows = tuple(messages.MetadataResponsePartition(0, at, 3, 0, (3,), (3,)) for at in range(partitions))
        topics = tuple(
            messages.MetadataResponseTopic(0, one.name, partitions=rows) for one in request.body.topics or ()
        )
        brokers = (messages.MetadataResponseBroker(3, *server.address),)
        return messages.MetadataResponse(brokers=brokers, controller_id=3, topics=topics)
    if request.api is DESCRIBE_CONFIGS:
        return messages.DescribeConfigsResponse()
    assert request.api is LIST_OFFSETS
    (asked,) = request.body.topics
    found = tuple(messages.ListOffsetsPartitionResponse(row.partition_index, offset=5) for row in asked.partitions)
    return messages.ListOffsetsResponse(topics=(messages.ListOffsetsTopicResponse(asked.name, found),))


@pytest.mark.parametrize("harm", HARM)
@pytest.mark.parametrize(("command", "api"), CONNECTED, ids=lambda one: one[0] if isinstance(one, list) else one.name)
def test_an_answer_that_is_none_ends_a_command_in_one_line(
    command: list[str], api: AnyApi, harm: str, capsys: pytest.CaptureFixture[str]
) -> None:
    servers: list[ScriptedServer] = []
    with ScriptedServer(harming(api, HARM[harm], servers)) as server:
        servers.append(server)
        code = main([*command, "--timeout", SECONDS, "--bootstrap-servers", f"127.0.0.1:{server.port}"])
    shown = capsys.readouterr()
    assert code == 1
    if command[0] == "check":
        failed = [line for line in shown.out.splitlines() if line.startswith("failed ")]
        assert len(failed) == 1, (
            "no connection; or that the listener expects a login, as brokers close connections then"
        )
    else:
        said = [line for line in shown.err.splitlines() if "still trying" not in line]
        assert len(said) == 1, shown.err
        assert re.match(r"pyproducer: .*127\.0\.0\.1|pyproducer: malformed", said[0])


def test_a_topic_of_many_partitions_costs_no_question_for_each(capsys: pytest.CaptureFixture[str]) -> None:
    asked: list[AnyApi] = []
    servers: list[ScriptedServer] = []

    def counting(peer: Peer) -> None:
        while True:
            request = peer.read()
            asked.append(request.api)
            peer.answer(request, answer(request, servers[0], MANY))

    with ScriptedServer(counting) as server:
        servers.append(server)
        where = ["--bootstrap-servers", f"127.0.0.1:{server.port}"]
        assert main(["topics", "describe", "t", *where]) == 0
        assert main(["tail", "t", "--from-beginning", "--until-end", *where]) == 0
    assert f"  {MANY - 1}: leader 3" in capsys.readouterr().out
    assert asked.count(METADATA) < 20


def test_a_silent_broker_ends_a_check_by_its_timeout(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    servers: list[ScriptedServer] = []
    clock, defaults = RunningClock(), BlockingClient.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "clock", clock)
    with ScriptedServer(harming(METADATA, lambda *_: clock.skip(30.0), servers)) as server:
        servers.append(server)
        where = ["--bootstrap-servers", f"127.0.0.1:{server.port}", "--timeout", "30"]
        (tmp_path / "rows.txt").write_text("a\n", encoding="utf-8")
        assert main(["check", *where]) == 1
        assert main(["write", str(tmp_path / "rows.txt"), "t", *where]) == 1
    shown = capsys.readouterr()
    assert "did not answer Metadata within 30 s" in shown.out
    assert "did not answer Metadata within 30 s" in shown.err
