"""What commands say of topics that are not there: which one may have been meant."""

from __future__ import annotations

from collections.abc import Sequence

from spark_producer.admin import BlockingClient
from spark_producer.admin.topic_suggestion import nearest_topic
from spark_producer.admin.topics import is_missing, wait_for_creation
from spark_producer.cli.console import print_error, raise_if_pipe_closed
from spark_producer.common.error_codes import Code
from spark_producer.errors import broker_error


def require_topics(client: BlockingClient, topics: Sequence[str]) -> None:
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


def wait_until_created(client: BlockingClient, topic: str, timeout: float | None = None) -> bool:
    """Wait until a topic exists and has leaders; return whether it was missing at first, so that all its records are new.

    A line on stderr says that it waits, and names a topic with a similar name. `timeout` is in seconds; None: until Ctrl-C.

    Raises:
        TopicNotFound: it was not created within `timeout`. BrokenPipeError: the reader of stdout has closed it. And as
        `BlockingClient.metadata`.
    """
    if not is_missing(client, topic):
        return False
    near = nearest_topic(client, topic)
    hint = f" Did you mean {near!r}?" if near else ""
    print_error(f"topic {topic!r} does not exist yet: waiting for its first write, or until it is created.{hint}")
    wait_for_creation(client, topic, timeout, raise_if_pipe_closed)
    return True
