"""Requests that are sent early, together with an earlier request, so that they need no round trip of their own.

The code that needs the response builds its request as if nothing had been sent. The early response is used only for an equal
request to the same broker, under the same leader epochs and ids of topics, unless the bootstrap servers were asked again since:
the broker may have been of another cluster (KIP-1242). Otherwise the request is sent again. An early error counts as any other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple, TypeAlias

from spark_producer.admin import BlockingClient
from spark_producer.admin.client import metadata_request
from spark_producer.admin.exchange import ANY, Exchange, NodeRequest, ResponseOrError
from spark_producer.common.cluster import TopicPartition
from spark_producer.errors import PyProducerError
from spark_producer.protocol import DESCRIBE_PRODUCERS, DESCRIBE_TRANSACTIONS, METADATA
from spark_producer.protocol.messages import MetadataResponse

MAX_AGE_S = 1.0
"""Maximum seconds from the sending of a request to the use of its response, so that the response is hardly outdated."""


LogVersion: TypeAlias = tuple[bytes | None, int]
"""The id of a partition's topic and the leader epoch, as far as they are known: a topic that is created again has another id."""


class EarlyRequest(NamedTuple):
    """A request that was sent, with the versions of its partitions, and `BlockingClient.rebootstraps`, at that time."""

    call: NodeRequest
    versions: dict[TopicPartition, LogVersion]
    exchange: Exchange
    rebootstraps: int

    def seconds_waited(self, now: float) -> float:
        """Return the seconds since the response has arrived; negative if it has not."""
        return now - self.exchange.last_response


class EarlyRequests:
    """The early requests of one sink whose responses are not used yet. Only requests that change nothing are sent early.

    A timeout closes a connection, with all requests in flight there. So early requests have the timeout of any request; only the
    wait for their responses ends at the caller's deadline.
    """

    def __init__(self, client: BlockingClient, version_of: Callable[[TopicPartition], LogVersion]) -> None:
        self._client = client
        self._version_of = version_of
        self._sent: list[EarlyRequest] = []

    def send(self, calls: Iterable[NodeRequest]) -> list[EarlyRequest]:
        """Send requests, and return without waiting."""
        found = []
        for call in calls:
            exchange = self._client.begin([call])  # which may forget all brokers first
            found.append(EarlyRequest(call, self._versions(call), exchange, self._client.rebootstraps))
        self._sent += found
        return found

    def send_metadata(self, topics: Sequence[str]) -> None:
        """Ask any broker for the brokers of the cluster and the leaders of `topics`, and return without waiting."""
        self.send([NodeRequest(ANY, METADATA, metadata_request(topics))])

    @property
    def is_sent(self) -> bool:
        """Whether all early requests are sent: none waits for its connection to open."""
        return all(self._client.is_sent(asked.exchange) for asked in self._sent)

    def request_all(self, calls: Sequence[NodeRequest], deadline: float) -> list[ResponseOrError]:
        """Return the responses or errors as `BlockingClient.request_all` does, without repeating requests that were sent
        early."""
        early = {at: found for at, call in enumerate(calls) if (found := self._take(call)) is not None}
        left = [at for at in range(len(calls)) if at not in early]
        exchange = self._client.begin([calls[at] for at in left], deadline)
        responses = {at: self._client.finish(found, deadline)[0] for at, found in early.items()}
        responses |= dict(zip(left, self._client.finish(exchange), strict=True))
        return [responses[at] for at in range(len(calls))]

    def metadata(self, topics: Sequence[str], deadline: float, node: int | None = ANY) -> MetadataResponse:
        """Return the brokers of the cluster and `topics`, as `node` or any broker knows them.

        Raises: as `BlockingClient.metadata`.
        """
        exchange = self._take(NodeRequest(node, METADATA, metadata_request(topics)))
        if exchange is not None:
            [response] = self._client.finish(exchange, deadline)
            if isinstance(response, PyProducerError):
                if self._client.clock() >= deadline:
                    raise response
            else:
                found: MetadataResponse = response
                self._client.learn(found)
                return found
        return self._client.metadata(topics, deadline, node)

    def _take(self, call: NodeRequest) -> Exchange | None:
        """Return the exchange of the early request whose response `call` can use, once; None if there is none."""
        for asked in self._sent:
            if _answers(asked.call, call):
                self._sent.remove(asked)
                is_old = (
                    self._client.clock() - asked.exchange.started > MAX_AGE_S
                    or self._client.rebootstraps != asked.rebootstraps
                )
                versions = self._versions(call)
                if not is_old and versions == {tp: asked.versions[tp] for tp in versions}:
                    return asked.exchange
                self._client.drop(asked.exchange)
                return None
        return None

    def drop(self, keeping: Collection[EarlyRequest] = ()) -> None:
        """Ignore the responses to all early requests but those in `keeping`: what they describe may have changed."""
        for asked in self._sent:
            if asked not in keeping:
                self._client.drop(asked.exchange)
        self._sent = [asked for asked in self._sent if asked in keeping]

    def _versions(self, call: NodeRequest) -> dict[TopicPartition, LogVersion]:
        """Return the known versions of the partitions of a request that does not name them itself."""
        return {tp: self._version_of(tp) for tp in _partitions(call)}


def _partitions(call: NodeRequest) -> frozenset[TopicPartition]:
    if call.api.key != DESCRIBE_PRODUCERS.key:
        return frozenset()
    return frozenset(TopicPartition(topic.name, each) for topic in call.body.topics for each in topic.partition_indexes)


def _ids(call: NodeRequest) -> frozenset[str]:
    return frozenset(call.body.transactional_ids if call.api.key == DESCRIBE_TRANSACTIONS.key else ())


def _answers(asked: NodeRequest, call: NodeRequest) -> bool:
    """Return whether the response to `asked` has all that `call` requests; it may be about more partitions or transactions."""
    if asked == call:
        return True
    if asked[:2] != call[:2]:
        return False
    partitions, ids = _partitions(call), _ids(call)
    return bool(partitions or ids) and partitions <= _partitions(asked) and ids <= _ids(asked)
