"""Rows in the control topic: no task and no plain write sends any, and the log believes the control id's own producer alone."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from spark_producer.config import parse_sink_options
from spark_producer.config.exactly_once_rules import check_exactly_once
from spark_producer.errors import ConfigError, ExactlyOnceError, PyProducerError, RecordError
from spark_producer.exactly_once import driver
from spark_producer.exactly_once.cluster import record_json
from spark_producer.exactly_once.cluster.end_transactions import end_tasks
from spark_producer.exactly_once.protocol.control_record import ControlRecord, Status
from spark_producer.exactly_once.protocol.task_messages import EncodedBatch
from spark_producer.producer import Producer
from spark_producer.record.small_batch import encode_few
from tests.support import filled_tasks
from tests.support.filled_tasks import QUERY, Tasks, batch, committed, prepared
from tests.unit.exactly_once.lossy_world import CONTROL, ONE, OTHER_TOPIC, SINK, ZERO, World

FORGED = ControlRecord(SINK, QUERY, Status.DONE, 7, 7, "f" * 32, (), (), 1, 1)


def write_rows(
    world: World, monkeypatch: pytest.MonkeyPatch, rows: list[tuple[bytes, bytes]], commit: bool = True
) -> None:
    """A task of another sink has written these rows into the control topic, in a transaction."""
    stranger = Tasks(world.broker.bootstrap_servers, "stranger", "1" * 32)

    def forged(topic: str, partition: int, *_: str) -> EncodedBatch:
        return EncodedBatch(topic, partition, len(rows), bytes(encode_few(rows, 1)))

    with monkeypatch.context() as patch:
        patch.setattr(filled_tasks, "batch", forged)
        one = stranger.fill(0, world.handle.transaction_version, {CONTROL: ["x"] * len(rows)})
    if commit:
        end_tasks(stranger.brokers, [one], commit=True, deadline=stranger.client.deadline())
    stranger.close()


@pytest.mark.parametrize("large", [False, True], ids=["inline", "a transaction"])
@pytest.mark.parametrize("topic", ["the sink's", "the default"])
def test_no_commit_takes_rows_for_a_control_topic(world: World, large: bool, topic: str) -> None:
    """Such rows were dropped and counted on path A, and moved another sink's last batch on path B."""
    if topic == "the default":
        world.sink = world.sink._replace(control_topic=OTHER_TOPIC)
        world.handle = driver.begin(world.sink)
    reported = (
        world.tasks.fill(0, world.handle.transaction_version, {CONTROL: ["x"]}) if large else batch(*CONTROL, "x")
    )
    with pytest.raises(ExactlyOnceError, match=r"is for control records.*Nothing is committed"):
        world.commit(0, batch(*ZERO, "a"), reported)
    if large:
        driver.abort(world.sink, [prepared(world.handle, 0, reported)], 0)  # type: ignore[arg-type]
    assert world.rows() == []
    assert "x" not in committed(world.broker, CONTROL[0])


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("copied", [False, True], ids=["made", "copied"])
def test_a_forged_record_is_not_believed(
    world: World, monkeypatch: pytest.MonkeyPatch, version: int, copied: bool
) -> None:
    world.commit(0, batch(*ZERO, "a"))
    writer = (world.handle.fencing if copied else (3, 0)) if version == 3 else None
    write_rows(world, monkeypatch, record_json.encode(FORGED, writer=writer))
    driver.close_all()
    for number in (1, 2):
        world.handle = driver.begin(world.sink)
        assert world.handle.last is not None
        assert world.handle.last.last_done == number - 1
        world.commit(number, batch(*ONE, str(number)))
    assert world.rows() == ["1", "2", "a"]


def test_a_forged_record_that_stays_open_blocks_no_read(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.commit(0, batch(*ZERO, "a"))
    write_rows(world, monkeypatch, record_json.encode(FORGED), commit=False)
    world.run_again(1, batch(*ZERO, "b"))
    assert driver.begin(world.sink).last is not None


@pytest.mark.parametrize("value", [b"x", record_json.encode(FORGED, writer=(3, 0))[0][1]], ids=["a row", "a record"])
def test_a_sink_whose_own_record_is_not_there_is_not_begun_by_anybody_s_rows(
    world: World, monkeypatch: pytest.MonkeyPatch, value: bytes
) -> None:
    """Compaction keeps the newest row of a key, of any producer."""
    write_rows(world, monkeypatch, [(SINK.encode(), value)])
    with pytest.raises(ExactlyOnceError, match=r"was written by another producer than the sink's|is no control record"):
        driver.begin(world.sink)


def test_records_of_earlier_versions_are_believed_until_there_is_one_of_this(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    encode = record_json.encode
    with monkeypatch.context() as old:
        old.setattr(record_json, "encode", lambda record, largest=900_000, _=None: encode(record, largest))
        world.commit(0, batch(*ZERO, "a"))
        world.run_again(1, batch(*ZERO, "b"))
    driver.close_all()
    world.run_again(1, batch(*ZERO, "b"))
    world.run_again(2, batch(*ZERO, "c"))
    assert world.rows() == ["a", "b", "c"]


def test_a_record_names_its_writer(world: World) -> None:
    world.commit(0, batch(*ZERO, "a"))
    head = json.loads(committed(world.broker, CONTROL[0])[-1])
    assert head["version"] == 3
    assert head["writer"] == list(world.handle.fencing)


def test_a_producer_refuses_rows_that_name_a_control_topic_and_names_them(world: World) -> None:
    world.broker.create_topic("else")
    with Producer({"bootstrap.servers": world.broker.bootstrap_servers}) as producer:
        rows = pa.record_batch({"value": [b"a", b"b"], "topic": ["else", CONTROL[0]]})
        with pytest.raises(
            RecordError,
            match="row 1 of the task: rows cannot go to the topic '__pyproducer_commits': it is for control records",
        ):
            producer.send_batch(rows)
        with pytest.raises(PyProducerError, match="is for control records"):
            producer.send_batch(rows.select(["value"]), topic=CONTROL[0])
        with pytest.raises(PyProducerError, match="is for control records"):
            producer.send(CONTROL[0], b"a").result(10)
        unused = pa.DictionaryArray.from_arrays(pa.array([0, 0], pa.int32()), pa.array(["else", CONTROL[0]]))
        producer.send_batch(pa.record_batch([rows.column("value"), unused], names=["value", "topic"]))
        producer.flush()
    assert committed(world.broker, "else") == ["a", "b"]


@pytest.mark.parametrize(
    "given",
    [
        {"topic": CONTROL[0]},
        {"topic": CONTROL[0], "exactlyOnceId": "a", "exactlyOnceControlTopic": "mine"},
        {"topic": "t", "deadLetterTopic": CONTROL[0], "exactlyOnceId": "a", "exactlyOnceControlTopic": "mine"},
    ],
)
def test_an_option_that_names_a_control_topic_is_refused(given: dict[str, str]) -> None:
    config, sink, _ = parse_sink_options({"kafka.bootstrap.servers": "h:1", **given})
    with pytest.raises(ConfigError, match="is for control records"):
        check_exactly_once(config, sink, streaming=False)
