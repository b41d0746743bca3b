"""Topics of tests on brokers that are slow to answer: asked for again, and no more often than makes sense."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import cast

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support.kafka_cluster import TOPIC_ATTEMPTS, create_topic

TIMEOUT, EXISTS, REFUSED = KafkaError._TIMED_OUT, KafkaError.TOPIC_ALREADY_EXISTS, KafkaError.POLICY_VIOLATION


class MadeUpAdmin:
    """Answers with these codes, one after the other; 0 is none."""

    def __init__(self, codes: Sequence[int]) -> None:
        self.codes = list(codes)

    def create_topics(self, topics: list[NewTopic], **_: object) -> dict[str, Future[None]]:
        answer: Future[None] = Future()
        code = self.codes.pop(0)
        if code:
            answer.set_exception(KafkaException(KafkaError(code)))
        else:
            answer.set_result(None)
        return {topics[0].topic: answer}


@pytest.mark.parametrize("codes", [[0], [TIMEOUT, 0], [TIMEOUT, EXISTS], [TIMEOUT, TIMEOUT, EXISTS]])
def test_a_topic_is_asked_for_until_there_is_an_answer(codes: list[int]) -> None:
    admin = MadeUpAdmin(codes)
    create_topic(cast(AdminClient, admin), NewTopic("t", 1, 1))
    assert admin.codes == []


@pytest.mark.parametrize("codes", [[EXISTS], [REFUSED], [TIMEOUT, REFUSED], [TIMEOUT] * TOPIC_ATTEMPTS])
def test_a_rejection_fails_at_once_and_silence_at_the_deadline(codes: list[int]) -> None:
    admin = MadeUpAdmin([*codes, 0])
    with pytest.raises(KafkaException):
        create_topic(cast(AdminClient, admin), NewTopic("t", 1, 1))
    assert admin.codes == [0]
