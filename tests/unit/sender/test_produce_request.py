"""The content of a Produce request: one V2 batch for each partition, all by one producer. Ids (tests/ids.md): PR1 to PR3."""

from __future__ import annotations

import pytest

from spark_producer.protocol import PRODUCE, PRODUCE_BY_ID, PRODUCE_ZSTD
from spark_producer.protocol.messages import ProduceRequest
from spark_producer.record.batch_v2 import MAGIC, batches, check_crc
from tests.fakes.sender_fakes import TOPIC, sender_fakes, sent_in


@pytest.mark.covers("PR1")
def test_a_partition_has_exactly_one_batch_of_v2() -> None:
    made = sender_fakes(leaders={TOPIC: (1, 1, 2)})
    for partition in range(3):
        made.batches(b"a", b"b", partition=partition)
    requests = made.produce()
    partitions = []
    for request in requests:
        assert isinstance(request.body, ProduceRequest)
        for topic in request.body.topic_data:
            for written in topic.partition_data:
                assert isinstance(written.records, memoryview)
                ((header, batch),) = batches(written.records)
                check_crc(header, batch)
                assert (header.magic, header.size, header.records_count) == (MAGIC, len(written.records), 1)
                partitions.append((request.node, written.index))
    assert sorted(partitions) == [(1, 0), (1, 0), (1, 1), (1, 1), (2, 2), (2, 2)]
    assert made.produce() == [], "a request without batches is not sent"


@pytest.mark.covers("PR2")
def test_zstd_needs_produce_7() -> None:
    assert (PRODUCE.min_version, PRODUCE_ZSTD.min_version) == (3, 7)
    assert PRODUCE_ZSTD.max_version == PRODUCE_BY_ID.max_version
    assert (PRODUCE.key, PRODUCE_ZSTD.key) == (0, 0)


@pytest.mark.covers("PR3")
@pytest.mark.parametrize("idempotent", [True, False])
def test_all_batches_of_a_request_have_the_producer_id_or_none_has_it(idempotent: bool) -> None:
    made = sender_fakes(idempotent=idempotent, leaders={TOPIC: (1, 1, 1)})
    for partition in range(3):
        made.batches(b"a", partition=partition)
    (request,) = made.produce()
    assert isinstance(request.body, ProduceRequest)
    assert request.body.transactional_id is None
    headers = [sent.header for sent in sent_in(request)]
    assert len(headers) == 3
    expected = (77, 0, 0) if idempotent else (-1, -1, -1)
    assert {(each.producer_id, each.producer_epoch, each.base_sequence) for each in headers} == {expected}
    assert not any(each.is_transactional or each.is_control for each in headers)
