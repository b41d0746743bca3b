"""A client that blocks until brokers respond: for the driver's checks, exactly-once commits, the command line and jobs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from spark_producer.admin.exchange import ANY, NodeRequest, only_response
from spark_producer.admin.exchange_client import POLL_INTERVAL, ExchangeClient
from spark_producer.admin.topic_leaders import TopicLeaders, missing_partition, topic_leaders
from spark_producer.common.cluster import NO_LEADER
from spark_producer.common.error_codes import Code
from spark_producer.errors import ConnectionFailed, KafkaTimeout, PyProducerError, TopicNotFound, text_and_advice
from spark_producer.network.metadata_wait import TopicStatus, TopicWait
from spark_producer.protocol import METADATA, AnyApi, Api, RequestBody, ResponseBody, is_misrouted
from spark_producer.protocol.messages import MetadataRequest, MetadataRequestTopic, MetadataResponse


class BlockingClient(ExchangeClient):
    """A client for one thread, which blocks while a call waits. Connections stay open between calls.

        with BlockingClient(ConnectionSettings((("localhost", 9092),)), timeout=10) as client:
            client.metadata(["orders"])

    `timeout` (seconds) bounds each call without a deadline of its own, and `timeout_option` is the name, for messages, of the
    option that sets it. No request takes longer than the `request_timeout` of `settings`. Deadlines are in seconds of `clock`.

    `on_wait`, if given, is called some ten times a second while a call waits for a connection, a response, or a topic. It gets
    the seconds since the call began, and the addresses or the topic that the call waits for. An exception from it ends the call.

    A request that is lost with its connection raises ConnectionFailed; only `metadata`, `request_any` and the calls that wait for
    topics are repeated. Ctrl-C, or any other exception in the middle of a call, closes all connections; the next call opens new
    ones.
    """

    # Requests

    def request(
        self,
        api: Api[RequestBody, ResponseBody],
        body: RequestBody,
        *,
        node: int | None = ANY,
        deadline: float | None = None,
    ) -> ResponseBody:
        """Send a request to `node`, or to any broker, and return the body of its response.

        Raises:
            BrokersUnreachable: no broker (or not `node`) could be reached in time; the text names each one and the reason.
            KafkaTimeout: the broker was reached, but did not respond in time.
            ConnectionFailed: the connection broke before the response came.
            UnsupportedVersion: the broker does not support this API.
            AuthenticationFailed, TlsFailed, ConfigError: the login or the handshake failed, and would fail again: raised at once.
        """
        response: ResponseBody = only_response(self._exchange([NodeRequest(node, api, body)], deadline))
        return response

    def request_each(
        self, api: Api[RequestBody, ResponseBody], body: RequestBody, nodes: Iterable[int]
    ) -> dict[int, ResponseBody | PyProducerError]:
        """Send a request to each of `nodes` at once, and return the body of each response, or the error in its place.

        All of them together have the time of one call: a silent broker delays no other.

        Raises:
            AuthenticationFailed, TlsFailed, ConfigError: as `request`.
        """
        distinct = list(dict.fromkeys(nodes))
        return dict(zip(distinct, self._exchange([NodeRequest(node, api, body) for node in distinct]), strict=True))

    def request_any(self, api: AnyApi, body: Any, deadline: float | None = None) -> Any:
        """Send a request to any broker, and again after a broken connection or a timeout; so it must not change anything.

        Raises: as `request`.
        """
        return self._request_any(api, body, self.deadline() if deadline is None else deadline)

    def metadata(
        self,
        topics: Sequence[str] | None,
        deadline: float | None = None,
        node: int | None = ANY,
        *,
        allow_auto_topic_creation: bool = False,
        with_rights: bool = False,
    ) -> MetadataResponse:
        """Return the cluster's brokers, and `topics` (None: all of them), as `node` or any broker knows them.

        A topic that fails carries its error code; `with_rights` each has those of the user (`topic_authorized_operations`).
        Without a `node` the request is repeated, as by `request_any`.

        Raises: as `request`.
        """
        body = metadata_request(topics)._replace(
            allow_auto_topic_creation=allow_auto_topic_creation, include_topic_authorized_operations=with_rights
        )
        if node is not ANY:
            response: MetadataResponse = only_response(self.request_all([NodeRequest(node, METADATA, body)], deadline))
            self.learn(response)
            return response
        deadline = self.deadline() if deadline is None else deadline
        return self._metadata(body, deadline, self.clock())

    # Topics

    def leaders_of(self, topic: str, partitions: Iterable[int], *, may_appear: bool = False) -> dict[int, int]:
        """Return the nodes that lead some partitions: one request, or more while an election is under way.

        Raises: as `wait_for_topic`.
        """
        deadline = self.deadline()
        wanted = list(partitions)
        leaders = self.wait_for_topic(topic, deadline=deadline, may_appear=may_appear)
        if min(wanted, default=0) < 0:  # such numbers come from brokers
            raise missing_partition("topic", topic, min(wanted), len(leaders))
        while lacking := [each for each in wanted if each >= len(leaders) or leaders[each] == NO_LEADER]:
            leaders = self.wait_for_topic(topic, deadline=deadline, partition=lacking[0], may_appear=may_appear)
        return {partition: leaders[partition] for partition in wanted}

    def wait_for_topic(
        self,
        topic: str,
        *,
        partition: int | None = None,
        may_appear: bool = False,
        create: bool = False,
        unknown_timeout: float = float("inf"),
        called: str = "topic",
        deadline: float | None = None,
    ) -> tuple[int, ...]:
        """Wait until the topic exists and `partition`, if given, has a leader; return each partition's leader (-1: none now).

        With `create` the broker may create the topic. With `create`, or with `may_appear` for a topic that was just created, an
        unknown topic is waited for, at most `unknown_timeout` seconds unless one of the brokers knows it. `called` is what
        messages call the topic.

        Raises: as `metadata`, and
            TopicNotFound: there is no such topic, or no such partition. BrokerError: the broker refuses.
            MetadataTimeout: there is still no leader when the time is up.
        """
        deadline = self.deadline() if deadline is None else deadline
        wait = TopicWait(
            topic,
            deadline,
            self._timeout_text,
            partition=-1 if partition is None else partition,
            needs_leader=partition is not None,
            may_appear=may_appear or create,
            unknown_timeout=unknown_timeout,
            user=self.user,
            called=called,
        )
        body, began = MetadataRequest((MetadataRequestTopic(name=topic),), create), deadline - self.timeout
        attempt = 0
        while True:
            try:
                found = topic_leaders(self._metadata(body, deadline, began), topic)
            except KafkaTimeout as error:  # an earlier response explains more than a timeout
                raise wait.error() if wait.answered else error from None
            status = self._judged(wait, found)
            if status is TopicStatus.READY:
                return found.leaders
            if status is TopicStatus.NO_PARTITION:
                raise missing_partition(called, topic, partition, len(found.leaders))
            left, pause = deadline - self.clock(), self.retry_backoff.delay(attempt)
            attempt += 1
            if left <= POLL_INTERVAL:  # no time for another response
                raise wait.error()
            reason = f"{wait.code.name}: {wait.code.advice}" if wait.code else wait.code.name
            self._pause(min(pause, left - POLL_INTERVAL), f"{called} {topic!r} (the brokers answer {reason})", began)

    def _judged(self, wait: TopicWait, found: TopicLeaders) -> TopicStatus:
        """Return the topic's status after a response. It is unknown only if no broker knows it, since metadata spreads slowly."""
        try:
            return wait.evaluate(self.clock(), found)
        except TopicNotFound:
            if not wait.ends_early(self.clock()) or not self._known_to_any(wait.topic):
                raise
            wait.exists()
            return TopicStatus.PENDING

    def _known_to_any(self, topic: str) -> bool:
        body = MetadataRequest((MetadataRequestTopic(name=topic),), False)
        unknown = Code.UNKNOWN_TOPIC_OR_PARTITION
        return any(
            isinstance(one, MetadataResponse) and topic_leaders(one, topic).error_code != unknown
            for one in self.request_each(METADATA, body, self.brokers).values()
        )

    # Responses

    def _request_any(self, api: AnyApi, body: Any, deadline: float, began: float | None = None) -> Any:
        while True:
            try:
                return only_response(self._exchange([NodeRequest(ANY, api, body)], deadline, began=began))
            except (ConnectionFailed, KafkaTimeout) as error:
                if is_misrouted(error) or self.clock() >= deadline:
                    raise

    def _metadata(self, body: MetadataRequest, deadline: float, began: float) -> MetadataResponse:
        """Return the response of any broker of the cluster. The bootstrap servers are asked instead of a broker of another one.

        Raises: as `metadata`.
        """
        attempt = 0
        while True:
            try:
                response: MetadataResponse = self._request_any(METADATA, body, deadline, began)
            except PyProducerError as error:
                if not is_misrouted(error):
                    raise
                self._wait_to_rebootstrap(error, self.retry_backoff.delay(attempt), deadline, began)
                attempt += 1
            else:
                self.learn(response)
                return response

    def _wait_to_rebootstrap(self, error: PyProducerError, pause: float, deadline: float, began: float) -> None:
        """Use the bootstrap servers again after a pause, because of `error`.

        Raises:
            KafkaTimeout: there is no time left for that.
        """
        if self.clock() + pause >= deadline:
            text, advice = text_and_advice(error)
            raise KafkaTimeout(
                f"within {self._timeout_text} no broker has answered for the cluster of the bootstrap servers; last: {text}. "
                f"What to do: {advice}."
            )
        with self._closed_if_interrupted():
            self._rebootstrap()
        self._pause(pause, "the bootstrap servers", began)

    def learn(self, response: MetadataResponse) -> None:
        """Let the connections take over the brokers of a Metadata response, unless it has none, or an error."""
        if response.brokers and not response.error_code:
            with self._closed_if_interrupted():
                self.brokers = {row.node_id: (row.host, row.port) for row in response.brokers}
                self._connections().set_nodes(self.brokers, self._identity.cluster_id)


def metadata_request(topics: Sequence[str] | None) -> MetadataRequest:
    """Return the request for the cluster's brokers and `topics` (None: all of them), without creating any."""
    wanted = None if topics is None else tuple(MetadataRequestTopic(name=name) for name in topics)
    return MetadataRequest(wanted, False)
