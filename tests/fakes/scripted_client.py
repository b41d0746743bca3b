"""The admin client without sockets: a test gives the response of each API, and time passes only in pauses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from spark_producer.admin import BlockingClient
from spark_producer.admin.exchange import Exchange, NodeRequest, ResponseOrError
from spark_producer.errors import ConnectionFailed, PyProducerError
from spark_producer.exactly_once.cluster.broker_requests import TransactionAdmin
from spark_producer.protocol import FIND_COORDINATOR, AnyApi, messages

TIMEOUT_S = 10.0
NOW_MS = 1_000_000
LOST = ConnectionFailed("the connection broke")


class ScriptedClient:
    """A fake of `BlockingClient`: two brokers, of which `coordinator` coordinates everything."""

    def __init__(self) -> None:
        self.user = "user 'app'"
        self.rebootstraps = 0
        self.brokers: dict[int, tuple[str, int]] = {}
        self.leaders: dict[tuple[str, int], int] = {}
        self.topic_id, self.leader_epoch = messages.NO_UUID, 0
        self.coordinator = 1
        self.sent: list[tuple[str, int | None, Any]] = []
        self.scripts: dict[str, Callable[[Any], ResponseOrError]] = {FIND_COORDINATOR.name: self._coordinators}
        self.timeout = TIMEOUT_S
        self._now = 0.0
        self.pauses: list[float] = []
        self.on_wait = None

    def __enter__(self) -> ScriptedClient:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def clock(self) -> float:
        return self._now

    def now_ms(self) -> int:
        return NOW_MS

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self._now += seconds

    def deadline(self) -> float:
        return self._now + TIMEOUT_S

    def request(self, api: AnyApi, body: Any, *, node: int | None = None, deadline: float = 0.0) -> Any:
        [answer] = self.request_all([NodeRequest(node, api, body)], deadline)
        if isinstance(answer, PyProducerError):
            raise answer
        return answer

    def request_any(self, api: AnyApi, body: Any, deadline: float) -> Any:
        return self.request(api, body, deadline=deadline)

    def begin(self, calls: Sequence[NodeRequest], deadline: float | None = None) -> Exchange:
        exchange = Exchange(calls, self._now, self.deadline() if deadline is None else deadline, True)
        exchange.unsent.clear()
        exchange.responses = self.request_all(calls, exchange.deadline)
        exchange.last_response = self._now
        return exchange

    def finish(self, exchange: Exchange, deadline: float | None = None) -> list[ResponseOrError]:
        return exchange.responses

    def is_sent(self, exchange: Exchange) -> bool:
        return True

    def drop(self, exchange: Exchange) -> None:
        pass

    def request_all(self, calls: Sequence[NodeRequest], deadline: float) -> list[ResponseOrError]:
        self.sent += [(call.api.name, call.node, call.body) for call in calls]
        return [self.scripts[call.api.name](call.body) for call in calls]

    def request_each(self, api: AnyApi, body: Any, nodes: Sequence[int]) -> dict[int, ResponseOrError]:
        return dict(zip(nodes, self.request_all([NodeRequest(node, api, body) for node in nodes], 0.0), strict=True))

    def metadata(self, topics: Sequence[str], deadline: float, node: int | None = None) -> messages.MetadataResponse:
        self.brokers = {1: ("one", 9092), 2: ("two", 9092)}
        rows = [
            messages.MetadataResponseTopic(
                name=topic,
                topic_id=self.topic_id,
                partitions=tuple(
                    messages.MetadataResponsePartition(
                        partition_index=number, leader_id=leader, leader_epoch=self.leader_epoch
                    )
                    for (name, number), leader in self.leaders.items()
                    if name == topic
                ),
            )
            for topic in topics
        ]
        reported = tuple(messages.MetadataResponseBroker(node, *address) for node, address in self.brokers.items())
        return messages.MetadataResponse(brokers=reported, topics=tuple(rows))

    def answers(self, api: AnyApi, *given: ResponseOrError) -> None:
        """Answer the requests of an API in this order, and the last one again and again."""
        left = list(given)
        self.scripts[api.name] = lambda _: left.pop(0) if len(left) > 1 else left[0]

    def bodies(self, api: AnyApi) -> list[Any]:
        """The requests of an API, in the order sent."""
        return [body for name, _, body in self.sent if name == api.name]

    def _coordinators(self, body: messages.FindCoordinatorRequest) -> messages.FindCoordinatorResponse:
        rows = (messages.FoundCoordinator(key, self.coordinator) for key in body.coordinator_keys)
        return messages.FindCoordinatorResponse(coordinators=tuple(rows))


def brokers_of(client: ScriptedClient, sink: str = "orders") -> TransactionAdmin:
    """The brokers as the performers of commands see them."""
    return TransactionAdmin(cast("BlockingClient", client), sink)
