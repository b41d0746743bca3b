"""The sender updates the metrics once for each batch and event, as Java does. Ids (tests/ids.md): SN."""

from __future__ import annotations

import pytest

from spark_producer.metrics import Levels, Snapshot
from spark_producer.metrics.metric_table import CLIENT, OWN, TOPIC
from spark_producer.record.batch_v2 import HEADER_SIZE
from spark_producer.record.codecs import Codec
from tests.fakes.sender_fakes import TOPIC as NAME
from tests.fakes.sender_fakes import SenderFakes, answer_to, in_flight, sender_fakes

NOT_LEADER, MESSAGE_TOO_LARGE, INVALID_RECORD, CLUSTER_AUTHORIZATION = 6, 10, 87, 31


def read(made: SenderFakes) -> Snapshot:
    return made.metrics.snapshot(Levels(), made.now)


def counts(made: SenderFakes, *names: str) -> list[float]:
    """Totals, in the group that has them."""
    snapshot = read(made)
    own = {"record-delivered", "batch-delivered", "record-failed", "batch-retry", "byte-delivered"}
    return [snapshot.value(OWN if name in own else CLIENT, f"{name}-total") for name in names]


@pytest.mark.covers("SN3")
def test_a_batch_counts_when_it_is_drained_and_when_it_is_acknowledged() -> None:
    made = sender_fakes()
    made.fakes.append(b"a" * 100, b"b" * 300)
    made.fakes.clock.advance(0.25)
    (outgoing,) = made.produce()
    (batch,) = outgoing.batches
    size = batch.size
    assert counts(made, "record-send", "record-delivered") == [2, 0]
    made.fakes.clock.advance(0.5)
    made.complete(outgoing, answer_to(outgoing))
    snapshot = read(made)
    assert counts(made, "record-send", "record-delivered", "batch-delivered", "byte-delivered") == [2, 2, 1, size]
    assert snapshot.value(CLIENT, "batch-size-avg") == size
    assert snapshot.value(CLIENT, "record-queue-time-avg") == pytest.approx(250)
    assert snapshot.value(OWN, "record-latency-max") == pytest.approx(750)
    assert snapshot.value(CLIENT, "records-per-request-avg") == 2
    assert snapshot.value(CLIENT, "compression-rate-avg") == 1
    assert snapshot.value(OWN, "record-bytes-avg") == (size - HEADER_SIZE) / 2
    assert [snapshot.value(TOPIC, f"{name}-total", NAME) for name in ("record-send", "byte")] == [2, size]


@pytest.mark.covers("SN45")
def test_a_batch_that_is_sent_again_counts_as_sent_twice_and_delivered_once() -> None:
    made = sender_fakes()
    made.fakes.append(b"a", b"b", b"c")
    (outgoing,) = made.produce()
    made.complete(outgoing, answer_to(outgoing, 19))
    assert counts(made, "record-retry", "batch-retry", "record-error") == [3, 1, 0]
    made.fakes.clock.advance(1)
    (again,) = made.produce()
    made.complete(again, answer_to(again))
    assert counts(made, "record-send", "record-delivered", "record-error") == [6, 3, 0]
    assert read(made).value(TOPIC, "record-retry-total", NAME) == 3


@pytest.mark.covers("SN44")
@pytest.mark.parametrize("code", [INVALID_RECORD, CLUSTER_AUTHORIZATION])
def test_the_records_of_a_refused_batch_have_failed(code: int) -> None:
    made = sender_fakes()
    made.fakes.append(b"a", b"b", b"c")
    (outgoing,) = made.produce()
    made.complete(outgoing, answer_to(outgoing, code))
    assert made.error is not None
    assert counts(made, "record-error", "record-failed", "record-delivered") == [3, 3, 0]
    assert read(made).value(TOPIC, "record-error-total", NAME) == 3


@pytest.mark.covers("SN46")
@pytest.mark.parametrize(("code", "errors"), [(NOT_LEADER, 2), (0, 1)])
def test_a_batch_that_expired_in_flight_fails_once_and_javas_error_counts_a_refusal_again(
    code: int, errors: int
) -> None:
    made = sender_fakes(delivery_timeout=120)
    (outgoing,) = in_flight(made, b"a")
    made.fakes.clock.advance(120)
    made.step()
    made.complete(outgoing, answer_to(outgoing, code))
    assert counts(made, "record-error", "record-failed", "record-delivered") == [errors, 1, 0]


@pytest.mark.covers("SN32")
def test_a_split_is_neither_a_retry_nor_an_error() -> None:
    made = sender_fakes()
    made.fakes.append(b"a" * 100, b"b" * 100)
    (outgoing,) = made.produce()
    outgoing.batches[0].max_record_size = 110
    made.complete(outgoing, answer_to(outgoing, MESSAGE_TOO_LARGE))
    assert counts(made, "batch-split", "record-retry", "record-error") == [1, 0, 0]
    for _ in range(2):
        (half,) = made.produce()
        assert half.batches[0].max_record_size == 110, "the halves know of a record that large"
        made.complete(half, answer_to(half))
    assert counts(made, "record-send", "record-delivered", "batch-delivered") == [4, 2, 2]


@pytest.mark.covers("SN3")
def test_a_request_has_the_records_of_all_its_batches() -> None:
    made = sender_fakes()
    made.batches(b"a")
    made.batches(b"b", b"c", partition=1)
    made.batches(b"d", partition=2)
    for outgoing in made.produce():
        made.complete(outgoing, answer_to(outgoing))
    snapshot = read(made)
    assert counts(made, "record-send", "record-delivered") == [4, 4]
    assert snapshot.value(OWN, "records-per-produce-request-max") == 2
    assert snapshot.value(OWN, "records-per-produce-request-avg") == 4 / 3


def test_the_compression_rate_is_that_of_the_records() -> None:
    made = sender_fakes(codec=Codec.ZSTD)
    made.fakes.append(b"a" * 400, b"b" * 400)
    (outgoing,) = made.produce()
    (batch,) = outgoing.batches
    snapshot = read(made)
    assert batch.codec == Codec.ZSTD
    assert snapshot.value(CLIENT, "compression-rate-avg") == pytest.approx(batch.compression_ratio, rel=0.01)
    assert snapshot.value(OWN, "record-bytes-avg") == pytest.approx(414, abs=5)
    assert snapshot.value(TOPIC, "byte-total", NAME) == batch.size < 300
