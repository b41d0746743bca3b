"""The check of a cluster before anything is written: what a write needs, whether it is there, and what to do if not."""

from __future__ import annotations

import enum
import json
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from spark_producer.admin.client import BlockingClient
from spark_producer.admin.topic_suggestion import nearest_topic
from spark_producer.admin.topics import topic_config
from spark_producer.common.error_codes import Code
from spark_producer.common.escape import for_log
from spark_producer.errors import (
    AuthenticationFailed,
    PyProducerError,
    TlsFailed,
    UnsupportedVersion,
    broker_error,
)
from spark_producer.network.addresses import format_address
from spark_producer.network.settings import ConnectionSettings, principal
from spark_producer.protocol import API_VERSIONS, INIT_PRODUCER_ID, METADATA, PRODUCE, AnyApi
from spark_producer.protocol.messages import (
    ApiVersionsRequest,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from spark_producer.protocol.messages.cluster import OPERATIONS_UNKNOWN

NEEDED: tuple[AnyApi, ...] = (METADATA, PRODUCE, INIT_PRODUCER_ID)
"""What every write asks of the brokers."""

OPERATIONS = {"WRITE": 4, "DESCRIBE": 8}
"""The rights that a write needs of its topic, and their bits (KIP-430, AclOperation)."""

MAX_NAMED_PARTITIONS = 5
"""So many partitions are named in a line."""


class State(enum.StrEnum):
    """What came out of one check.

    Only `FAILED` means that a write would fail. The one exception is a topic that is not there: brokers that create topics would
    take a write to it, but the name may be wrong.
    """

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    UNKNOWN = "unknown"


class Finding(NamedTuple):
    """One line: what was looked at, how it is, and what to do about it."""

    name: str
    state: State
    text: str
    advice: str = ""


def as_json(findings: Sequence[Finding]) -> str:
    """Return findings as one JSON object: `ok`, and `findings`, a list of {name, state, text, advice}."""
    return json.dumps({"ok": not failed(findings), "findings": [one._asdict() for one in findings]})


def failed(findings: Sequence[Finding]) -> bool:
    """Whether a check has failed, so that the exit code is 1."""
    return any(one.state is State.FAILED for one in findings)


def check_cluster(
    settings: ConnectionSettings,
    topic: str | None = None,
    *,
    timeout: float = 10.0,
    on_wait: Callable[[float, str], None] | None = None,
) -> Iterator[Finding]:
    """Yield what is found, from the connection up to the rights on `topic`. After a failure the rest may be missing.

    It writes nothing and creates nothing. `timeout` (seconds) bounds each question. Errors are findings, and are not raised.
    """
    with BlockingClient(settings, timeout=timeout, on_wait=on_wait) as client:
        try:
            answer = client.metadata([])
        except PyProducerError as error:
            yield from _not_connected(settings, error)
            return
        yield from _connected(settings, answer)
        if answer.error_code or not answer.brokers:
            yield _no_cluster(answer.error_code)
            return
        yield from _each_broker(client, answer)
        yield _versions(client)
        if topic is not None:
            try:
                yield from _topic(client, settings, topic)
            except PyProducerError as error:
                yield Finding("topic", State.FAILED, *_told(error))


def _told(error: PyProducerError) -> tuple[str, str]:
    """Return an error's text, and the advice that is in it."""
    text, _, advice = str(error).partition(" What to do: ")  # an error has escaped what brokers say
    return text.rstrip("."), advice.rstrip(".")


def _not_connected(settings: ConnectionSettings, error: PyProducerError) -> Iterator[Finding]:
    """Yield at which step it failed to connect, with those before it."""
    steps: list[tuple[str, type[PyProducerError]]] = [("tls", TlsFailed), ("login", AuthenticationFailed)]
    steps.append(("versions", UnsupportedVersion))
    name = next((name for name, kind in steps if isinstance(error, kind)), "connection")
    if name != "connection":
        yield Finding("connection", State.OK, f"{_bootstrap(settings)} takes connections")
    if name in ("login", "versions") and settings.security.tls is not None:
        yield Finding("tls", State.OK, f"the connection is encrypted ({settings.security.protocol})")
    yield Finding(name, State.FAILED, *_told(error))


def _connected(settings: ConnectionSettings, answer: MetadataResponse) -> Iterator[Finding]:
    nodes = ", ".join(format_address(for_log(row.host), row.port) for row in answer.brokers)
    count = f"{len(answer.brokers)} broker" + ("s" if len(answer.brokers) != 1 else "")
    yield Finding("connection", State.OK, f"{_bootstrap(settings)} answers: {count} ({nodes})")
    security = settings.security
    if security.tls is None:
        yield Finding("tls", State.OK, f"not asked for: the connection is not encrypted ({security.protocol})")
    else:
        yield Finding("tls", State.OK, f"the connection is encrypted ({security.protocol})")
    yield Finding("login", State.OK, f"the brokers know us as {principal(security)}")


def _no_cluster(code: int) -> Finding:
    if code:
        return Finding("brokers", State.FAILED, *_told(broker_error(code, "the brokers of the cluster")))
    return Finding(
        "brokers", State.FAILED, "the cluster has none, by its own answer", "look whether they are still starting"
    )


def _bootstrap(settings: ConnectionSettings) -> str:
    return ", ".join(format_address(host, port) for host, port in settings.bootstrap)


def _each_broker(client: BlockingClient, answer: MetadataResponse) -> Iterator[Finding]:
    """Yield whether the addresses that brokers tell lead to them: a write goes to each partition's leader."""
    try:
        told = client.request_each(METADATA, MetadataRequest((), False), [row.node_id for row in answer.brokers])
    except PyProducerError as error:
        yield Finding("brokers", State.FAILED, *_told(error))
        return
    lost = {node: answered for node, answered in sorted(told.items()) if isinstance(answered, PyProducerError)}
    for node, reason in lost.items():
        text, advice = _told(reason)
        yield Finding("brokers", State.FAILED, f"broker {node}: {text}", advice)
    if not lost:
        yield Finding("brokers", State.OK, "each is reached at the address that it tells (advertised.listeners)")


def _versions(client: BlockingClient) -> Finding:
    try:
        answer = client.request(API_VERSIONS, ApiVersionsRequest("pyproducer", "check"))
    except PyProducerError as error:
        return Finding("versions", State.UNKNOWN, *_told(error))
    spoken = {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}
    lacking = [
        api.name
        for api in NEEDED
        if api.key not in spoken or spoken[api.key][0] > api.max_version or spoken[api.key][1] < api.min_version
    ]
    if lacking:
        return Finding("versions", State.FAILED, f"no common version of {', '.join(lacking)}", "use Kafka 2.1 or newer")
    told = ", ".join(f"{api.name} {min(api.max_version, spoken[api.key][1])}" for api in NEEDED)
    return Finding("versions", State.OK, f"every API that a write needs is spoken: {told}")


def _topic(client: BlockingClient, settings: ConnectionSettings, topic: str) -> Iterator[Finding]:
    body = MetadataRequest((MetadataRequestTopic(name=topic),), False, include_topic_authorized_operations=True)
    answer = client.request(METADATA, body)
    row = next(
        (one for one in answer.topics if one.name == topic),
        MetadataResponseTopic(Code.UNKNOWN_TOPIC_OR_PARTITION, topic),
    )
    code = answer.error_code or row.error_code
    if answer.error_code or not row.partitions:
        code = code or Code.LEADER_NOT_AVAILABLE
        error = broker_error(code, f"topic {topic!r}", user=principal(settings.security), topic=topic)
        text, advice = _told(error)
        if error.code is Code.UNKNOWN_TOPIC_OR_PARTITION:
            near = nearest_topic(client, topic)
            hint = f" (did you mean {near!r}?)" if near else ""
            advice = f"create the topic (`pyproducer topics create {topic} --partitions 4`), or correct its name{hint}"
        name = "rights" if "AUTHORIZATION" in error.code.name else "topic"
        yield Finding(name, State.FAILED, text, advice)
        return
    count = f"{len(row.partitions):,} partition" + ("s" if len(row.partitions) != 1 else "")
    yield Finding("topic", State.OK, f"{topic!r} has {count}")
    yield _leaders(row, {broker.node_id for broker in answer.brokers})
    yield from _in_sync(client, row, topic, len(answer.brokers))
    yield _rights(row, settings)


def _leaders(row: MetadataResponseTopic, brokers: set[int]) -> Finding:
    """Say which partitions have no leader. One that is not among the brokers is none: nothing can be sent to it."""
    without = sorted(each.partition_index for each in row.partitions if each.leader_id not in brokers)
    if not without:
        return Finding("leaders", State.OK, "every partition has a leader")
    return Finding(
        "leaders",
        State.FAILED,
        f"{_numbered(without)} of {len(row.partitions)} has no leader: no broker with its data is up",
        "start the brokers that hold it; `pyproducer topics describe` names them",
    )


def _in_sync(client: BlockingClient, row: MetadataResponseTopic, topic: str, brokers: int) -> Iterator[Finding]:
    name = "min.insync.replicas"
    try:
        config = topic_config(client, topic, [name])
    except PyProducerError as error:
        yield Finding(name, State.UNKNOWN, *_told(error))
        return
    if config is None or name not in config:
        advice = "grant DESCRIBE_CONFIGS on the topic to have this checked; writes do not need it"
        yield Finding(name, State.UNKNOWN, "may not be seen", advice)
        return
    try:
        least = int(config[name])
    except ValueError:
        yield Finding(name, State.UNKNOWN, f"the broker answers '{for_log(config[name])}', which is no number")
        return
    short = sorted(each.partition_index for each in row.partitions if len(each.isr_nodes) < least)
    replicas = min((len(each.replica_nodes) for each in row.partitions), default=0)
    if short:
        text = f"{_numbered(short)}: fewer replicas are in sync than {name}={least}, so brokers refuse acks=all"
        yield Finding(name, State.FAILED, text, "wait for the brokers that are down or behind, or start them")
    elif least < 2 and brokers > 1:
        text = f"{name}={least} with {replicas} replicas: the loss of one broker can lose acknowledged rows"
        yield Finding(name, State.WARNING, text, "use three replicas and min.insync.replicas=2 for data that matters")
    else:
        yield Finding(name, State.OK, f"{name}={least}, and every partition has as many replicas in sync")


def _rights(row: MetadataResponseTopic, settings: ConnectionSettings) -> Finding:
    granted, user = row.topic_authorized_operations, principal(settings.security)
    if granted == OPERATIONS_UNKNOWN:
        return Finding("rights", State.UNKNOWN, "the broker does not tell them")
    lacking = [name for name, bit in OPERATIONS.items() if not granted >> bit & 1]
    if not lacking:
        return Finding("rights", State.OK, f"{user} may write to it")
    wanted = " ".join(f"--operation {name.capitalize()}" for name in lacking)
    command = f"kafka-acls.sh --bootstrap-server … --add --allow-principal User:… {wanted} --topic {row.name}"
    return Finding("rights", State.FAILED, f"{user} lacks {' and '.join(lacking)} on it", f"grant it with `{command}`")


def _numbered(partitions: Sequence[int]) -> str:
    shown = ", ".join(map(str, partitions[:MAX_NAMED_PARTITIONS]))
    more = f" and {len(partitions) - MAX_NAMED_PARTITIONS:,} more" if len(partitions) > MAX_NAMED_PARTITIONS else ""
    return f"partition{'s' if len(partitions) != 1 else ''} {shown}{more}"
