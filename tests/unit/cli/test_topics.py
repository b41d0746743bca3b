"""`pyproducer topics`, and what `tail` can stop at and look for; the topics as kafka-python sees them."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path

import pytest
from kafka import KafkaConsumer

from spark_producer import Producer
from spark_producer.broker import LocalBroker
from spark_producer.cli.entry import main
from spark_producer.cli.progress import ProgressBar


def run(broker: LocalBroker, *arguments: str) -> int:
    return main([*arguments, "--bootstrap-servers", broker.bootstrap_servers])


def test_topics_are_created_described_listed_and_deleted(
    embedded_broker: LocalBroker, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    other = f"{topic}-2"
    assert (
        run(embedded_broker, "topics", "create", topic, other, "--partitions", "3", "--config", "retention.ms=-1") == 0
    )
    assert capsys.readouterr().out.splitlines() == [f"{topic} is created", f"{other} is created"]
    consumer = KafkaConsumer(bootstrap_servers=embedded_broker.bootstrap_servers)
    try:
        assert consumer.partitions_for_topic(topic) == {0, 1, 2}
    finally:
        consumer.close()
    assert run(embedded_broker, "topics", "create", topic) == 0
    assert capsys.readouterr().out == f"{topic} exists already, and is unchanged\n"
    asked = ["--partitions", "3", "--replication-factor", "1", "--config", "retention.ms=-1"]
    assert run(embedded_broker, "topics", "create", topic, *asked) == 0
    assert capsys.readouterr().out == f"{topic} exists already, and is unchanged\n"
    asked = [
        "--partitions",
        "4",
        "--replication-factor",
        "1",
        "--config",
        "retention.ms=5",
        "--config",
        "cleanup.policy=delete",
    ]
    assert run(embedded_broker, "topics", "create", topic, f"{topic}-3", *asked) == 1
    assert capsys.readouterr().out.splitlines() == [
        f"{topic} exists already, and is unchanged: it has 3 partitions, not 4; retention.ms=-1, not 5",
        f"{topic}-3 is created",
    ]
    assert run(embedded_broker, "topics", "list") == 0
    assert f"{topic}  3 partitions, 1 replica" in capsys.readouterr().out.splitlines()
    with Producer({"bootstrap.servers": embedded_broker.bootstrap_servers}) as producer:
        producer.send(topic, b"v", partition=1)
    assert run(embedded_broker, "topics", "describe", topic, "--json") == 0
    page = json.loads(capsys.readouterr().out)
    assert [(row["partition"], row["first"], row["end"]) for row in page["partitions"]] == [
        (0, 0, 0),
        (1, 0, 1),
        (2, 0, 0),
    ]
    assert page["config"]["retention.ms"] == "-1"
    assert run(embedded_broker, "topics", "describe", topic) == 0
    assert "  1: leader 1  replicas 1  in sync 1  offsets 0 to 1" in capsys.readouterr().out.splitlines()
    assert run(embedded_broker, "topics", "delete", topic, other, "--yes") == 0
    assert topic not in embedded_broker.topics()
    assert other not in embedded_broker.topics()


@pytest.mark.parametrize("action", ["describe", "delete"])
def test_a_topic_that_is_not_there_is_one_error(
    embedded_broker: LocalBroker, topic: str, capsys: pytest.CaptureFixture[str], action: str
) -> None:
    more = ["--yes"] if action == "delete" else []
    assert run(embedded_broker, "topics", action, topic, *more) == 1
    message = capsys.readouterr().err
    assert f"UNKNOWN_TOPIC_OR_PARTITION (3) for topic {topic!r}" in message
    assert len(message.splitlines()) == 1


@pytest.mark.parametrize("arguments", [["tail", "--until-end"], ["topics", "describe"], ["topics", "delete"]])
def test_a_mistyped_topic_suggests_a_similar_one(
    embedded_broker: LocalBroker, topic: str, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    """A delete asks nothing then, and nothing is gone, though the first topic is there."""
    embedded_broker.create_topic(topic, 1)
    more = [topic] if "delete" in arguments else []
    assert run(embedded_broker, *arguments, *more, f"{topic}s") == 1
    message = capsys.readouterr()
    assert message.out == ""
    (line,) = message.err.splitlines()
    assert f"correct the name (did you mean {topic!r}?)" in line
    assert ("create the topic" in line) == (not more)
    assert topic in embedded_broker.topics()


def test_more_replicas_than_brokers(
    embedded_broker: LocalBroker, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(embedded_broker, "topics", "create", topic, "--replication-factor", "3") == 1
    assert "INVALID_REPLICATION_FACTOR (38)" in (message := capsys.readouterr().err)
    assert "start more brokers" in message


@pytest.mark.parametrize(("command", "action"), [("topics", "create"), ("txn", "resolve")])
def test_a_command_without_its_action_names_the_actions(
    command: str, action: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main([command])
    assert action in capsys.readouterr().err.rpartition("required: ")[2]


def test_nothing_is_deleted_without_an_answer(
    embedded_broker: LocalBroker, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    embedded_broker.create_topic(topic, 1)
    assert run(embedded_broker, "topics", "delete", topic) == 1
    assert "there is no terminal for the question. Give --yes" in capsys.readouterr().err
    assert topic in embedded_broker.topics()
    assert run(embedded_broker, "topics", "create", "x", "--config", "nonsense") == 1
    assert "--config takes NAME=VALUE" in capsys.readouterr().err


@pytest.fixture
def filled(embedded_broker: LocalBroker, topic: str) -> str:
    """Ten records in each of two partitions."""
    embedded_broker.create_topic(topic, 2)
    with Producer({"bootstrap.servers": embedded_broker.bootstrap_servers}) as producer:
        for number in range(20):
            value = b"\xff\x00" if number == 7 else f"value {number}".encode()
            producer.send(topic, value, key=None if number == 8 else "k", partition=number % 2, headers=[("h", b"x")])
    return topic


def shown(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return sorted(line.split()[0] for line in capsys.readouterr().out.splitlines())


def test_tail_until_the_end_from_an_offset(
    embedded_broker: LocalBroker, filled: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(embedded_broker, "tail", filled, "--until-end", "--offset", "8") == 0
    assert shown(capsys) == ["0:8", "0:9", "1:8", "1:9"]
    assert run(embedded_broker, "tail", filled, "--until-end", "--offset=-1") == 0
    assert shown(capsys) == ["0:9", "1:9"]
    assert run(embedded_broker, "tail", filled, "--until-end", "--offset", "-99", "--partition", "1") == 0
    assert len(shown(capsys)) == 10
    capsys.readouterr()
    assert run(embedded_broker, "tail", filled, "--until-end") == 0
    nothing = capsys.readouterr()
    assert nothing.out == ""
    assert "--until-end stops there. Add --from-beginning" in nothing.err


def test_tail_stops_when_nothing_comes(
    embedded_broker: LocalBroker, filled: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(embedded_broker, "tail", filled, "--from-beginning", "--timeout", "1") == 0
    assert len(shown(capsys)) == 20


def test_tail_as_json_and_with_a_pattern(
    embedded_broker: LocalBroker, filled: str, capsys: pytest.CaptureFixture[str]
) -> None:
    begin = ("tail", filled, "--from-beginning", "--until-end")
    assert run(embedded_broker, *begin, "--json") == 0
    rows = {(row["partition"], row["offset"]): row for row in map(json.loads, capsys.readouterr().out.splitlines())}
    assert len(rows) == 20
    assert base64.b64decode(rows[1, 3]["value_base64"]) == b"\xff\x00"
    assert (rows[0, 4]["key"], rows[0, 4]["value"], rows[0, 4]["headers"]) == (
        None,
        "value 8",
        [{"key": "h", "value": "x"}],
    )
    assert run(embedded_broker, *begin, "--grep", "value 1[0-3]", "--max-records", "3") == 0
    assert len(shown(capsys)) == 3
    assert run(embedded_broker, *begin, "--grep", "key=null") == 0
    assert shown(capsys) == ["0:4"]
    assert run(embedded_broker, *begin, "--grep", "^0:") == 0
    assert shown(capsys) == [], "offsets and times are no part of what is looked through"


def test_a_bad_pattern_is_a_bad_argument(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["tail", "t", "--grep", "("])
    assert caught.value.code == 2
    assert "'(' is not a regular expression" in capsys.readouterr().err


def test_a_bare_pyproducer_lists_its_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    out = capsys.readouterr().out
    assert "find out whether a write to a topic would work" in out


def test_a_bar_is_for_terminals_alone(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    bar = ProgressBar("writing", 200)
    bar(100)
    bar.end()
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    bar = ProgressBar("writing", 200)
    bar(100)
    bar(100)
    bar.end()
    assert capsys.readouterr().err == f"\rwriting  {'█' * 12}{'░' * 12}  50 %\x1b[K\r\x1b[K"
    ProgressBar("writing", None, " rows")(1234)
    assert capsys.readouterr().err == "\rwriting  1,234 rows\x1b[K"
    monkeypatch.setattr("sys.stderr", terminal := Ascii())
    ProgressBar("writing", 200)(100)
    assert terminal.getvalue() == f"\rwriting  {'#' * 12}{'-' * 12}  50 %\x1b[K", "which escapes could not draw"


class Ascii(io.StringIO):
    """A terminal that shows 95 characters."""

    encoding = "ascii"

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    "command", [["topics", "create", "a/b", "--timeout", "5"], ["write", "{file}", "{topic}", "--format", "json"]]
)
def test_an_error_has_a_line_of_its_own_below_a_bar(
    embedded_broker: LocalBroker, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    file = tmp_path / "rows.json"
    file.write_text('{"a": 1}\n' * 20_000 + "no JSON\n", encoding="utf-8")
    monkeypatch.setattr("sys.stderr", message := Ascii())
    assert run(embedded_broker, *(argument.format(file=file, topic=topic) for argument in command)) == 1
    bars, *complaints = message.getvalue().split("pyproducer: ")
    assert bars.endswith("%\x1b[K\r\x1b[K") or bars.endswith("rows\x1b[K\r\x1b[K")
    assert complaints
    assert all(complaint.endswith("\n") for complaint in complaints)


def test_no_number_is_too_long_to_be_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (
        ["tail", "t", "--offset", "9" * 30],
        ["tail", "t", "--offset", "--5"],
        ["tail", "t", "--timeout", "9" * 5000],
        ["topics", "create", "t", "--partitions", "-1"],
    ):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert ended.value.code == 2
        message = capsys.readouterr().err.splitlines()[-1]
        assert "expected a whole number from " in message or "expected one argument" in message
        assert len(message) < 500


def test_an_offset_may_be_negative_and_the_message_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["tail", "t", "--offset", "abc"])
    assert "or -N for N records before the end, not 'abc'" in capsys.readouterr().err
