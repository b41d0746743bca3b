"""Checks of a cluster before a write: connection, login, brokers, versions, topic and rights, with advice for each failure."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from spark_producer.admin.client import BlockingClient
from spark_producer.admin.missing_topics import suggest_topic
from spark_producer.admin.topics import topic_config
from spark_producer.common.addresses import broker_name, format_address
from spark_producer.common.error_codes import Code
from spark_producer.common.escape import for_log
from spark_producer.errors import (
    AuthenticationFailed,
    PyProducerError,
    TlsFailed,
    UnsupportedVersion,
    broker_error,
    text_and_advice,
)
from spark_producer.network.settings import ConnectionSettings, principal
from spark_producer.protocol import API_VERSIONS, INIT_PRODUCER_ID, METADATA, PRODUCE, AnyApi, other_cluster
from spark_producer.protocol.messages import (
    ApiVersionsRequest,
    MetadataRequest,
    MetadataResponse,
    MetadataResponseTopic,
)
from spark_producer.protocol.messages.cluster import OPERATIONS_UNKNOWN

NEEDED: tuple[AnyApi, ...] = (METADATA, PRODUCE, INIT_PRODUCER_ID)
"""The APIs that every write needs."""

OPERATIONS = {"WRITE": 4, "DESCRIBE": 8}
"""The operations on its topic that a write needs, and their bits (KIP-430, AclOperation)."""

MAX_NAMED_PARTITIONS = 5
"""Maximum partitions that a finding names."""


class FindingState(enum.StrEnum):
    """The result of one check.

    `FAILED` means that a write would fail, with one exception: a missing topic has failed because its name may be wrong, but
    brokers that create topics would accept a write to it.
    """

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    UNKNOWN = "unknown"


class Finding(NamedTuple):
    """The result of one check: its name, state and text, and advice if something is to be done."""

    name: str
    state: FindingState
    text: str
    advice: str = ""


def failed(findings: Sequence[Finding]) -> bool:
    """Return whether a check has failed, so that the exit code is 1."""
    return any(one.state is FindingState.FAILED for one in findings)


def check_cluster(
    settings: ConnectionSettings,
    topic: str | None = None,
    *,
    timeout: float = 10.0,
    on_wait: Callable[[float, str], None] | None = None,
) -> Iterator[Finding]:
    """Yield the findings, from the connection to the rights on `topic`. After a failure the others may be missing.

    Nothing is written or created. `timeout` (seconds) bounds each request. Errors become findings, and are not raised.
    """
    with BlockingClient(settings, timeout=timeout, on_wait=on_wait) as client:
        try:
            response = client.metadata([])
        except PyProducerError as error:
            yield from _not_connected(settings, error)
            return
        yield from _connected(settings, response)
        if response.error_code or not response.brokers:
            yield _no_brokers(response.error_code)
            return
        yield from _advertised_addresses(client, response)
        yield _versions(client)
        if topic is not None:
            try:
                yield from _topic(client, settings, topic)
            except PyProducerError as error:
                yield Finding("topic", FindingState.FAILED, *text_and_advice(error))


def _not_connected(settings: ConnectionSettings, error: PyProducerError) -> Iterator[Finding]:
    """Yield the step at which connecting failed, after the steps before it."""
    steps: list[tuple[str, type[PyProducerError]]] = [("tls", TlsFailed), ("login", AuthenticationFailed)]
    steps.append(("versions", UnsupportedVersion))
    name = next((name for name, kind in steps if isinstance(error, kind)), "connection")
    lacks_login = getattr(error, "lacks_login", False)
    if lacks_login or (isinstance(error, AuthenticationFailed) and not error.connected):
        yield Finding("login", FindingState.FAILED, *text_and_advice(error))
        return
    if name != "connection":
        yield Finding("connection", FindingState.OK, f"{_bootstrap(settings)} accepts connections")
    if name in ("login", "versions") and settings.security.tls is not None:
        yield Finding("tls", FindingState.OK, f"the connection is encrypted ({settings.security.protocol})")
    yield Finding(name, FindingState.FAILED, *text_and_advice(error))


def _connected(settings: ConnectionSettings, response: MetadataResponse) -> Iterator[Finding]:
    nodes = ", ".join(format_address(for_log(row.host), row.port) for row in response.brokers)
    count = f"{len(response.brokers)} broker" + ("s" if len(response.brokers) != 1 else "")
    yield Finding("connection", FindingState.OK, f"{_bootstrap(settings)} answers: {count} ({nodes})")
    security = settings.security
    if security.tls is None:
        yield Finding("tls", FindingState.OK, f"not configured: the connection is not encrypted ({security.protocol})")
    else:
        yield Finding("tls", FindingState.OK, f"the connection is encrypted ({security.protocol})")
    yield Finding("login", FindingState.OK, f"the brokers know this client as {principal(security)}")


def _no_brokers(code: int) -> Finding:
    if code:
        return Finding(
            "brokers", FindingState.FAILED, *text_and_advice(broker_error(code, "the brokers of the cluster"))
        )
    return Finding(
        "brokers", FindingState.FAILED, "the cluster reports no brokers", "check whether they are still starting"
    )


def _bootstrap(settings: ConnectionSettings) -> str:
    return ", ".join(format_address(host, port) for host, port in settings.bootstrap)


def _advertised_addresses(client: BlockingClient, response: MetadataResponse) -> Iterator[Finding]:
    """Yield whether each broker is reached at its advertised address, because a write goes to the leader of each partition."""
    try:
        found = client.request_each(METADATA, MetadataRequest((), False), [row.node_id for row in response.brokers])
    except PyProducerError as error:
        yield Finding("brokers", FindingState.FAILED, *text_and_advice(error))
        return
    names = {row.node_id: broker_name(row.node_id, row.host, row.port) for row in response.brokers}
    problems = {
        node: each if isinstance(each, PyProducerError) else other_cluster(each, response.cluster_id, names[node])
        for node, each in sorted(found.items())
    }
    for node, problem in problems.items():
        if problem is not None:
            text, advice = text_and_advice(problem)
            subject = "" if text.startswith(names[node]) else f"broker {node}: "
            yield Finding("brokers", FindingState.FAILED, f"{subject}{text}", advice)
    if not any(problems.values()):
        yield Finding("brokers", FindingState.OK, "each is reached at its advertised address (advertised.listeners)")


def _versions(client: BlockingClient) -> Finding:
    try:
        response = client.request(API_VERSIONS, ApiVersionsRequest("pyproducer", "check"))
    except PyProducerError as error:
        return Finding("versions", FindingState.UNKNOWN, *text_and_advice(error))
    ranges = {row.api_key: (row.min_version, row.max_version) for row in response.api_keys}
    lacking = [
        api.name
        for api in NEEDED
        if api.key not in ranges or ranges[api.key][0] > api.max_version or ranges[api.key][1] < api.min_version
    ]
    if lacking:
        return Finding(
            "versions", FindingState.FAILED, f"no common version of {', '.join(lacking)}", "use Kafka 2.1 or newer"
        )
    common = ", ".join(f"{api.name} {min(api.max_version, ranges[api.key][1])}" for api in NEEDED)
    return Finding("versions", FindingState.OK, f"the brokers support every API that a write needs: {common}")


def _topic(client: BlockingClient, settings: ConnectionSettings, topic: str) -> Iterator[Finding]:
    response = client.metadata([topic], with_rights=True)
    row = next(
        (one for one in response.topics if one.name == topic),
        MetadataResponseTopic(Code.UNKNOWN_TOPIC_OR_PARTITION, topic),
    )
    code = response.error_code or row.error_code
    if response.error_code or not row.partitions:
        code = code or Code.LEADER_NOT_AVAILABLE
        error = broker_error(code, f"topic {topic!r}", user=principal(settings.security), topic=topic)
        text, advice = text_and_advice(error)
        if error.code is Code.UNKNOWN_TOPIC_OR_PARTITION:
            similar = suggest_topic(client, topic)
            hint = f" (did you mean {similar!r}?)" if similar else ""
            advice = f"create the topic (`pyproducer topics create {topic} --partitions 4`), or correct its name{hint}"
        name = "rights" if "AUTHORIZATION" in error.code.name else "topic"
        yield Finding(name, FindingState.FAILED, text, advice)
        return
    count = f"{len(row.partitions):,} partition" + ("s" if len(row.partitions) != 1 else "")
    yield Finding("topic", FindingState.OK, f"{topic!r} has {count}")
    yield _leaders(row, {broker.node_id for broker in response.brokers})
    yield from _in_sync(client, row, topic, len(response.brokers))
    yield _rights(row, settings)


def _leaders(row: MetadataResponseTopic, brokers: set[int]) -> Finding:
    """Return which partitions have no leader. A leader that is not among the brokers counts as none: its address is unknown."""
    without = sorted(each.partition_index for each in row.partitions if each.leader_id not in brokers)
    if not without:
        return Finding("leaders", FindingState.OK, "every partition has a leader")
    return Finding(
        "leaders",
        FindingState.FAILED,
        f"{_numbered(without)} of {len(row.partitions)} has no leader: no broker with its data is up",
        "start the brokers that hold it; `pyproducer topics describe` lists them",
    )


def _in_sync(client: BlockingClient, row: MetadataResponseTopic, topic: str, brokers: int) -> Iterator[Finding]:
    name = "min.insync.replicas"
    try:
        config = topic_config(client, topic, [name])
    except PyProducerError as error:
        yield Finding(name, FindingState.UNKNOWN, *text_and_advice(error))
        return
    if config is None or name not in config:
        advice = "grant DESCRIBE_CONFIGS on the topic to check it; writes do not need this right"
        yield Finding(name, FindingState.UNKNOWN, "not visible to this user", advice)
        return
    try:
        minimum = int(config[name])
    except ValueError:
        yield Finding(
            name, FindingState.UNKNOWN, f"the broker reports '{for_log(config[name])}', which is not a number"
        )
        return
    short = sorted(each.partition_index for each in row.partitions if len(each.isr_nodes) < minimum)
    replicas = min((len(each.replica_nodes) for each in row.partitions), default=0)
    if short:
        text = f"{_numbered(short)}: fewer in-sync replicas than {name}={minimum}, so brokers refuse acks=all"
        yield Finding(
            name,
            FindingState.FAILED,
            text,
            "start the brokers that are down, or wait until their replicas have caught up",
        )
    elif minimum < 2 and brokers > 1:
        text = f"{name}={minimum} with {replicas} replicas: the loss of one broker can lose acknowledged rows"
        yield Finding(
            name, FindingState.WARNING, text, "use three replicas and min.insync.replicas=2 for data that matters"
        )
    else:
        yield Finding(name, FindingState.OK, f"{name}={minimum}, and every partition has as many in-sync replicas")


def _rights(row: MetadataResponseTopic, settings: ConnectionSettings) -> Finding:
    granted, user = row.topic_authorized_operations, principal(settings.security)
    if granted == OPERATIONS_UNKNOWN:
        return Finding("rights", FindingState.UNKNOWN, "the broker does not report them")
    lacking = [name for name, bit in OPERATIONS.items() if not granted >> bit & 1]
    if not lacking:
        return Finding("rights", FindingState.OK, f"{user} may write to the topic")
    wanted = " ".join(f"--operation {name.capitalize()}" for name in lacking)
    command = f"kafka-acls.sh --bootstrap-server … --add --allow-principal User:… {wanted} --topic {row.name}"
    return Finding(
        "rights",
        FindingState.FAILED,
        f"{user} lacks {' and '.join(lacking)} on the topic",
        f"grant it with `{command}`",
    )


def _numbered(partitions: Sequence[int]) -> str:
    shown = ", ".join(map(str, partitions[:MAX_NAMED_PARTITIONS]))
    more = f" and {len(partitions) - MAX_NAMED_PARTITIONS:,} more" if len(partitions) > MAX_NAMED_PARTITIONS else ""
    return f"partition{'s' if len(partitions) != 1 else ''} {shown}{more}"
