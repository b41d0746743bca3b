"""Reads of very many topic-partitions: few requests, and few tasks for few records."""

from __future__ import annotations

import pytest

from spark_producer.admin.partition_offsets import find_topics, list_offsets
from spark_producer.broker import LocalBroker
from spark_producer.common.offsets import LATEST
from spark_producer.datasource.read.driver.batch_plan import plan_batch
from spark_producer.datasource.read.driver.range_splitting import MIN_SHARED_TASKS
from spark_producer.datasource.read.pushed_filters import PushedFilters
from spark_producer.protocol import CREATE_TOPICS
from spark_producer.protocol.messages import CreatableTopic, CreateTopicsRequest
from tests.unit.datasource.read.topics import client_of, fill, settings

TOPICS, PARTITIONS = 40, 25


@pytest.mark.covers("RD11")
def test_a_thousand_partitions_are_a_few_requests_and_a_few_tasks() -> None:
    with LocalBroker() as broker:
        names = [f"many-{number:02}" for number in range(TOPICS)]
        with client_of(broker) as client:
            topics = tuple(CreatableTopic(name, PARTITIONS, -1) for name in names)
            client.request(CREATE_TOPICS, CreateTopicsRequest(topics))
            for name in names:
                fill(broker, name, {3: 1, 7: 2})
            before = client.requests
            leaders = find_topics(client, names).leaders
            ends = list_offsets(client, dict.fromkeys(leaders, LATEST), leaders)
            assert (len(ends), sum(ends.values()), client.requests - before) == (TOPICS * PARTITIONS, TOPICS * 3, 2)
        tasks = plan_batch(settings(broker, subscribePattern="^many-"), PushedFilters())
        assert MIN_SHARED_TASKS <= len(tasks) < 2 * TOPICS
        assert sum(each.end - each.start for task in tasks for each in task.ranges) == TOPICS * 3
