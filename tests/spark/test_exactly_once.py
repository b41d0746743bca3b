"""Exactly-once writes in a real session: what a reader of committed records sees, whatever is written again.

All is read by librdkafka, which knows nothing of us. The failures of processes and brokers are the matrix's (tests/matrix).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from spark_producer.admin import BlockingClient
from spark_producer.cli.entry import main
from spark_producer.network import ConnectionSettings
from spark_producer.protocol import LIST_TRANSACTIONS
from spark_producer.protocol.messages import ListTransactionsRequest
from tests.conftest import Broker
from tests.spark.frames import session_settings, short_message, write
from tests.spark.streams import FileStream, run
from tests.support.kafka_cluster import KafkaCluster
from tests.support.read_back import read_topic

SCHEMA = "value string, bad boolean"
ROWS = 40
TWO_PHASES = {"exactlyOnceMaxInlineBytes": 0}


def rows(first: int, count: int = ROWS) -> list[dict[str, object]]:
    return [{"value": str(number)} for number in range(first, first + count)]


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> FileStream:
    return FileStream(spark, tmp_path, SCHEMA)


def committed(broker: Broker, topic: str) -> Counter[int]:
    """Return the count of each number in committed records."""
    found = read_topic(broker.bootstrap_servers, topic, client="confluent", isolation="read_committed")
    return Counter(int(row.value or b"") for row in found)


def once(count: int) -> Counter[int]:
    return Counter(range(count))


def open_transactions(broker: Broker, sink: str) -> list[str]:
    """The transactional ids of the sink with an open transaction."""
    host, _, port = broker.bootstrap_servers.rpartition(":")
    with BlockingClient(ConnectionSettings(((host, int(port)),))) as client:
        node = client.metadata([]).brokers[0].node_id
        answer = client.request(LIST_TRANSACTIONS, ListTransactionsRequest(("Ongoing",)), node=node)
    ids = [each.transactional_id for each in answer.transaction_states]
    return [each for each in ids if each.startswith(f"pyproducer.{sink}.")]


def play(stream: FileStream, broker: Broker, topic: str, sink: str, **options: object) -> None:
    """Run the query until it has written all there is."""
    frame = stream.frame.selectExpr("if(bad, raise_error('boom'), value) as value")
    run(stream.to(broker, topic, frame.repartition(2), {"exactlyOnceId": sink, **options}))


def lose_the_last_commit(stream: FileStream) -> None:
    """Remove Spark's note of the commit, as if the driver had died before it."""
    forget(stream, "commits")


def forget(stream: FileStream, *notes: str) -> None:
    """Take the last committed micro-batch out of these folders of the checkpoint."""
    last = stream.committed()[-1]
    for folder in notes:
        for path in (stream.checkpoint / folder).glob(f"*{last}*"):
            path.unlink()


def test_a_query_writes_small_and_large_batches_once(
    spark: SparkSession, broker: Broker, topic: str, stream: FileStream
) -> None:
    """Inline, in transactions of tasks, and mixed: one task of the last batch has few rows and the other many."""
    broker.create_topic(topic, 3)
    stream.put("0.json", rows(0))
    stream.put("1.json", rows(ROWS))
    play(stream, broker, topic, topic)
    assert committed(broker, topic) == once(2 * ROWS)
    stream.put("2.json", rows(2 * ROWS))
    stream.put("3.json", rows(3 * ROWS))
    play(stream, broker, topic, topic, **TWO_PHASES)
    assert committed(broker, topic) == once(4 * ROWS)
    stream.put("4.json", rows(4 * ROWS))
    frame = stream.frame.selectExpr("value", "value").toDF("value", "key").where("key is not null").drop("key")
    uneven = frame.repartitionByRange(2, frame.value.cast("int") > 4 * ROWS)
    run(stream.to(broker, topic, uneven, {"exactlyOnceId": topic, "exactlyOnceMaxInlineBytes": 150}))
    assert committed(broker, topic) == once(5 * ROWS)
    assert stream.committed() == [0, 1, 2, 3, 4]
    assert open_transactions(broker, topic) == []


@pytest.mark.parametrize("options", [{}, TWO_PHASES], ids=["inline", "two phases"])
def test_a_batch_whose_commit_was_not_noted_is_not_written_again(
    broker: Broker, topic: str, stream: FileStream, options: dict[str, object]
) -> None:
    broker.create_topic(topic, 3)
    stream.put("0.json", rows(0))
    stream.put("1.json", rows(ROWS))
    play(stream, broker, topic, topic, **options)
    lose_the_last_commit(stream)
    assert stream.committed() == [0]
    stream.put("2.json", rows(2 * ROWS))
    play(stream, broker, topic, topic, **options)
    assert stream.committed() == [0, 1, 2]
    assert committed(broker, topic) == once(3 * ROWS)


def test_a_checkpoint_that_is_one_batch_late_is_refused_if_the_batch_has_other_rows(
    embedded_broker: Broker, topic: str, stream: FileStream
) -> None:
    """Spark plans the batch again, under the number that is committed: skipped, its new rows would never be written."""
    embedded_broker.create_topic(topic, 1)
    stream.put("0.json", rows(0, 9))
    play(stream, embedded_broker, topic, topic)
    forget(stream, "offsets", "sources/0", "commits")
    stream.put("0.json", rows(0, 18))
    with pytest.raises(StreamingQueryException, match="was committed with 9 rows, and now has 18") as refused:
        play(stream, embedded_broker, topic, topic)
    short_message(str(refused.value))
    assert stream.committed() == []
    servers = embedded_broker.bootstrap_servers
    assert main(["txn", "resolve", topic, "--accept-row-count-mismatch", "--yes", "--bootstrap-servers", servers]) == 0
    play(stream, embedded_broker, topic, topic)
    assert stream.committed() == [0]
    assert committed(embedded_broker, topic) == once(9)


STATE = "spark.sql.streaming.stateStore"
EACH_STATE_IS_NAMED = {
    f"{STATE}.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    f"{STATE}.checkpointFormatVersion": "2",
    f"{STATE}.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1",
}
"""Each execution of a micro-batch writes a state of its own, and Spark's note of the micro-batch names it."""


def test_a_stateful_query_goes_on_from_a_batch_whose_commit_was_not_noted(
    spark: SparkSession, embedded_broker: Broker, topic: str, stream: FileStream
) -> None:
    """Its rows are more than fit between Spark and its worker, so the state is written only if the worker reads them all.

    Only the repetition has such rows: the first execution, which writes them, needs none.
    """
    embedded_broker.create_topic(topic, 1)
    distinct = stream.frame.dropDuplicates(["value"])
    stream.put("0.json", rows(0, 20))
    with session_settings(spark, EACH_STATE_IS_NAMED):
        for key in ("'small'", "repeat('x', 900000)"):
            frame = distinct.selectExpr("value", f"{key} as key")
            run(stream.to(embedded_broker, topic, frame, {"exactlyOnceId": topic}))
            assert stream.committed() == [0]
            lose_the_last_commit(stream)
    assert committed(embedded_broker, topic) == once(20)


def test_a_failed_batch_leaves_nothing_and_its_repetition_is_seen_once(
    broker: Broker, topic: str, stream: FileStream
) -> None:
    broker.create_topic(topic, 3)
    stream.put("0.json", rows(0))
    stream.put("1.json", [*rows(ROWS), {"value": "-1", "bad": True}])
    with pytest.raises(StreamingQueryException, match="boom"):
        play(stream, broker, topic, topic, **TWO_PHASES)
    assert committed(broker, topic) == once(ROWS)
    stream.put("1.json", rows(ROWS))
    play(stream, broker, topic, topic, **TWO_PHASES)
    assert committed(broker, topic) == once(2 * ROWS)
    assert open_transactions(broker, topic) == [], "the next BEGIN ends what tasks have left"


def test_an_id_of_another_query_and_a_rewound_checkpoint_are_refused(
    spark: SparkSession, kafka_4: Broker, topic: str, stream: FileStream, tmp_path: Path
) -> None:
    kafka_4.create_topic(topic, 1)
    for number in range(2):
        stream.put(f"{number}.json", rows(number * ROWS))
    play(stream, kafka_4, topic, topic)
    (tmp_path / "other").mkdir()
    other = FileStream(spark, tmp_path / "other", SCHEMA)
    other.put("0.json", rows(0))
    with pytest.raises(StreamingQueryException, match="belongs to the streaming query") as refused:
        play(other, kafka_4, topic, topic)
    short_message(str(refused.value))
    for _ in range(2):
        lose_the_last_commit(stream)
    for path in (stream.checkpoint / "offsets").glob("*1*"):
        path.unlink()
    with pytest.raises(StreamingQueryException, match="the checkpoint was rewound"):
        play(stream, kafka_4, topic, topic)
    assert committed(kafka_4, topic) == once(2 * ROWS)


def numbers(spark: SparkSession, count: int) -> DataFrame:
    return spark.range(0, count, 1, 2).selectExpr("string(id) as value")


@pytest.mark.parametrize("options", [{}, TWO_PHASES], ids=["inline", "two phases"])
def test_a_job_that_runs_again_writes_nothing(
    spark: SparkSession, broker: Broker, topic: str, options: dict[str, object]
) -> None:
    broker.create_topic(topic, 3)
    for version in (7, 7, 6):
        write(numbers(spark, ROWS), broker, topic, {"exactlyOnceId": topic, "txnVersion": version, **options})
    assert committed(broker, topic) == once(ROWS)
    more = numbers(spark, 2 * ROWS).where(f"int(value) >= {ROWS}")
    write(more, broker, topic, {"exactlyOnceId": topic, "txnVersion": 8, **options})
    assert committed(broker, topic) == once(2 * ROWS)
    assert open_transactions(broker, topic) == []


def test_a_failed_job_leaves_nothing_that_readers_see(spark: SparkSession, kafka_4: Broker, topic: str) -> None:
    kafka_4.create_topic(topic, 3)
    # One task: another would run on for a while after the job has failed, and its transaction would hold readers back.
    bad = spark.range(0, ROWS, 1, 1).selectExpr(f"string(if(id = {ROWS - 1}, raise_error('boom'), id)) as value")
    with pytest.raises(Exception, match="boom"):
        write(bad, kafka_4, topic, {"exactlyOnceId": topic, "txnVersion": 1, **TWO_PHASES})
    assert committed(kafka_4, topic) == Counter()
    write(numbers(spark, ROWS), kafka_4, topic, {"exactlyOnceId": topic, "txnVersion": 1, **TWO_PHASES})
    assert committed(kafka_4, topic) == once(ROWS)
    assert open_transactions(kafka_4, topic) == []


def test_in_foreach_batch_the_number_of_the_batch_is_the_version(
    spark: SparkSession, kafka_4: Broker, topic: str, stream: FileStream
) -> None:
    kafka_4.create_topic(topic, 1)
    stream.put("0.json", rows(0))

    def query(**options: object) -> None:
        def write_batch(frame: DataFrame, number: int) -> None:
            given = {name: number if name == "txnVersion" else value for name, value in options.items()}
            write(frame.select("value"), kafka_4, topic, {"exactlyOnceId": topic, **given})

        run(stream.frame.writeStream.foreachBatch(write_batch).option("checkpointLocation", str(stream.checkpoint)))

    with pytest.raises(StreamingQueryException, match="in foreachBatch needs txnVersion"):
        query()
    query(txnVersion=True)
    lose_the_last_commit(stream)
    query(txnVersion=True)
    assert committed(kafka_4, topic) == once(ROWS)
    lose_the_last_commit(stream)
    stream.put("0.json", rows(0, ROWS + 1))
    with pytest.raises(
        StreamingQueryException, match=f"txnVersion 0 was committed with {ROWS} rows, and now has {ROWS + 1}"
    ):
        query(txnVersion=True)
    assert committed(kafka_4, topic) == once(ROWS)


def foreach_batch(stream: FileStream, broker: Broker, topic: str, *times: str) -> None:
    """A query whose function writes each batch as often as there are ids."""

    def write_batch(frame: DataFrame, number: int) -> None:
        for sink in times:
            write(frame.select("value"), broker, topic, {"exactlyOnceId": sink, "txnVersion": number})

    run(stream.frame.writeStream.foreachBatch(write_batch).option("checkpointLocation", str(stream.checkpoint)))


def test_a_second_write_of_a_number_and_a_new_checkpoint_are_refused_in_foreach_batch(
    spark: SparkSession, embedded_broker: Broker, topic: str, stream: FileStream, tmp_path: Path
) -> None:
    """Tasks see the query and its run there. Their rows were dropped, with a warning alone."""
    embedded_broker.create_topic(topic, 1)
    stream.put("0.json", rows(0))
    for _ in range(2):  # the second start finds the first write done, and must not take the second one for it
        with pytest.raises(StreamingQueryException, match="txnVersion 0 was written before in this run of the query"):
            foreach_batch(stream, embedded_broker, topic, topic, topic)
    foreach_batch(stream, embedded_broker, topic, topic, f"{topic}-2")
    stream.put("1.json", rows(ROWS))
    foreach_batch(stream, embedded_broker, topic, topic, f"{topic}-2")
    assert committed(embedded_broker, topic) == once(2 * ROWS) + once(2 * ROWS)
    (tmp_path / "other").mkdir()
    other = FileStream(spark, tmp_path / "other", SCHEMA)
    other.put("0.json", rows(2 * ROWS))
    with pytest.raises(StreamingQueryException, match=r"belongs to the streaming query .*--rebind"):
        foreach_batch(other, embedded_broker, topic, topic)
    servers = embedded_broker.bootstrap_servers
    assert main(["txn", "resolve", topic, "--rebind", "--yes", "--bootstrap-servers", servers]) == 0
    foreach_batch(other, embedded_broker, topic, topic)
    assert committed(embedded_broker, topic) == once(2 * ROWS) + once(3 * ROWS)


def halves(stream: FileStream, broker: Broker, topic: str, fails: str = "") -> None:
    """A query whose function writes each batch in two parts with one id and rising numbers."""

    def write_batch(frame: DataFrame, number: int) -> None:
        for half, half_name in enumerate(("first", "second")):
            part = frame.where(f"int(value) % 2 = {half}").select("value")
            write(part, broker, topic, {"exactlyOnceId": topic, "txnVersion": 2 * number + half})
            if half_name == fails:
                raise ValueError("as the test asked")

    run(stream.frame.writeStream.foreachBatch(write_batch).option("checkpointLocation", str(stream.checkpoint)))


def test_a_function_with_two_numbers_a_batch_starts_again_wherever_it_has_stopped(
    embedded_broker: Broker, topic: str, stream: FileStream
) -> None:
    """The first write has a lower number than the last completed one; Spark's number of the micro-batch says that it is done."""
    embedded_broker.create_topic(topic, 1)
    stream.put("0.json", rows(0))
    for fails in ("first", "second", "second"):
        with pytest.raises(StreamingQueryException, match="as the test asked"):
            halves(stream, embedded_broker, topic, fails)
    assert committed(embedded_broker, topic) == once(ROWS)
    stream.put("1.json", rows(ROWS))
    halves(stream, embedded_broker, topic)
    for _ in range(2):
        lose_the_last_commit(stream)
        halves(stream, embedded_broker, topic)
    assert committed(embedded_broker, topic) == once(2 * ROWS)
    lose_the_last_commit(stream)
    stream.put("1.json", rows(ROWS, ROWS + 1))  # one more of the first half
    with pytest.raises(StreamingQueryException, match=f"txnVersion 2 was committed with {ROWS // 2} rows, and now has"):
        halves(stream, embedded_broker, topic)
    for path in (stream.checkpoint / "offsets").glob("*1*"):
        path.unlink()
    lose_the_last_commit(stream)
    with pytest.raises(
        StreamingQueryException, match="has micro-batch 1 of this query, and now micro-batch 0 is to be"
    ):
        halves(stream, embedded_broker, topic)
    assert committed(embedded_broker, topic) == once(2 * ROWS)


def test_a_late_file_with_as_many_rows_is_found_in_a_checkpoint_that_is_one_batch_late(
    embedded_broker: Broker, topic: str, stream: FileStream
) -> None:
    """Every row has the same width, too."""
    embedded_broker.create_topic(topic, 1)
    stream.put("0.json", rows(10, 9))
    play(stream, embedded_broker, topic, topic)
    lose_the_last_commit(stream)
    play(stream, embedded_broker, topic, topic)
    forget(stream, "offsets", "sources/0", "commits")
    stream.put("0.json", rows(20, 9))
    with pytest.raises(StreamingQueryException, match="was committed with 9 rows, and now has as many, but others"):
        play(stream, embedded_broker, topic, topic)
    play(stream, embedded_broker, topic, topic, exactlyOnceCompare="count")
    assert committed(embedded_broker, topic) == Counter(range(10, 19))


def failure(frame: DataFrame, broker: Broker, topic: str, options: dict[str, object]) -> str:
    with pytest.raises(Exception, match=r"spark_producer\.errors") as caught:
        write(frame, broker, topic, options)
    return short_message(str(caught.value))


def test_an_error_of_begin_has_a_short_traceback(spark: SparkSession, kafka_4: KafkaCluster, topic: str) -> None:
    """The error is raised while Spark pickles the writer."""
    kafka_4.create_topic(topic, 1)
    kafka_4.create_topic(f"{topic}-commits", 1, config={"retention.ms": "604800000"})
    options: dict[str, object] = {"exactlyOnceId": topic, "exactlyOnceControlTopic": f"{topic}-commits"}
    said = failure(numbers(spark, 2), kafka_4, topic, options)
    assert "spark_producer.errors.ExactlyOnceError: the control topic" in said
    assert "Could not serialize" not in said


LIMITS: Sequence[tuple[dict[str, object], str]] = [
    ({"exactlyOnceId": "a b"}, "exactlyOnceId cannot be 'a b'"),
    ({"exactlyOnceId": "a", "kafka.acks": "1"}, "exactlyOnceId needs kafka.acks=all"),
    ({"txnVersion": 1}, "txnVersion needs exactlyOnceId"),
    ({"exactlyOnceId": "a", "kafka.transactional.id": "mine"}, "'kafka.transactional.id' is not supported"),
]


@pytest.mark.parametrize(("options", "said"), LIMITS)
def test_what_cannot_be_is_said_before_a_task_starts(
    spark: SparkSession, kafka_4: Broker, topic: str, options: dict[str, object], said: str
) -> None:
    assert said in failure(numbers(spark, 2), kafka_4, topic, options)


def test_a_version_is_not_for_streams(kafka_4: Broker, topic: str, stream: FileStream) -> None:
    kafka_4.create_topic(topic, 1)
    stream.put("0.json", rows(0))
    with pytest.raises(StreamingQueryException, match="txnVersion is for batch writes"):
        play(stream, kafka_4, topic, topic, txnVersion=1)
