"""What commands say of topics that are not there: which one may have been meant."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from spark_producer.cli.terminal import complain, stop_if_nobody_reads
from spark_producer.codes import Code
from spark_producer.errors import TopicNotFound, broker_error
from spark_producer.tools import BlockingClient
from spark_producer.tools.nearest import nearest_topic
from spark_producer.tools.topics import wait_for_topic

POLL_SECONDS = 0.5
"""Seconds between two questions whether a topic exists now."""


@contextmanager
def meant(client: BlockingClient, topic: str) -> Iterator[None]:
    """Name a topic with a similar name where one is not there.

    Raises: what is raised within it.
    """
    try:
        yield
    except TopicNotFound as error:
        near = nearest_topic(client, topic)
        if near is None or near == topic:  # it is there, and its partition is not
            raise
        advice = f"correct the name (did you mean {near!r}?), or create the topic"
        raise broker_error(error.code, f"topic {topic!r}", advice=advice, topic=topic) from None


def check_there(client: BlockingClient, topics: Sequence[str]) -> None:
    """Refuse the first of some topics that is not there.

    Raises:
        TopicNotFound: it is not. And as `BlockingClient.metadata`.
    """
    code = Code.UNKNOWN_TOPIC_OR_PARTITION
    gone = [row.name for row in client.metadata(topics).topics if row.error_code == code]
    for topic in topics:
        if topic in gone:
            near = nearest_topic(client, topic)
            hint = f" (did you mean {near!r}?)" if near else ""
            raise broker_error(
                code, f"topic {topic!r}", advice=f"correct the name{hint}; nothing was changed", topic=topic
            )


def wait_until_created(
    client: BlockingClient,
    topic: str,
    timeout: float | None = None,
    *,
    pause: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> bool:
    """Wait until a topic exists and has leaders; return whether it was missing at first, so that all its records are new.

    One line says that it waits, and names a topic with a similar name. `timeout` (seconds) None: until Ctrl-C.

    Raises:
        TopicNotFound: it was not created within `timeout`. BrokenPipeError: nobody reads stdout any more. And as
        `BlockingClient.metadata`.
    """
    if not _is_missing(client, topic):
        return False
    near = nearest_topic(client, topic)
    hint = f" Did you mean {near!r}?" if near else ""
    complain(f"topic {topic!r} does not exist yet: waiting for its first write, or until it is created.{hint}")
    deadline = None if timeout is None else clock() + timeout
    while _is_missing(client, topic):
        if deadline is not None and clock() >= deadline:
            raise broker_error(Code.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic!r}", topic=topic)
        stop_if_nobody_reads()
        pause(POLL_SECONDS)
    wait_for_topic(client, topic)
    return True


def _is_missing(client: BlockingClient, topic: str) -> bool:
    rows = client.metadata([topic]).topics
    return all(row.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION for row in rows if row.name == topic)
