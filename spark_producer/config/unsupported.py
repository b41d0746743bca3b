"""Options that are not accepted, and the messages about them.

For Kafka's own names there is a reason, and for any other name the nearest known one.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping

KAFKA_PREFIX = "kafka."
"""The prefix of Kafka's names among the options of the Spark sink."""

KERBEROS = "Kerberos needs a C library and a ticket on every executor; use SCRAM, OAUTHBEARER or Spark's own Kafka sink"
_JAVA = "Java classes cannot run here"
_JAVA_TLS = "Java's TLS does not run here; OpenSSL's has no such choice"
_JAVA_TOKENS = "Java classes cannot run here; give a token endpoint or `oauthTokenProvider`"
_ENGINES = "OpenSSL's engines and providers are those of Python"
_CHECKS = "brokers check tokens; a client only passes them on"

REFUSED: Mapping[str, str] = {
    "key.serializer": "keys are string or binary columns and go out as they are; cast the column instead",
    "value.serializer": "values are string or binary columns and go out as they are; cast the column instead",
    "interceptor.classes": "Java classes cannot run here; change the rows with DataFrame operations before the write",
    "metric.reporters": "Java classes cannot run here; the commit log line reports what was written",
    "auto.include.jmx.reporter": "there is no JVM, so no JMX; the commit log line reports what was written",
    "config.providers": "Java classes cannot run here; fill in secrets and variables where the options are set",
    "security.providers": _JAVA,
    "group.id": "it belongs to consumers; this sink only writes",
    "auto.offset.reset": "it belongs to consumers; this sink only writes",
    "isolation.level": "it belongs to consumers, each of which sets `read_committed` for itself (docs/exactly_once.md)",
    "sasl.login.class": _JAVA,
    "ssl.engine.factory.class": _JAVA,
    "ssl.provider": _JAVA_TLS,
    "ssl.keymanager.algorithm": _JAVA_TLS,
    "ssl.trustmanager.algorithm": _JAVA_TLS,
    "ssl.secure.random.implementation": _JAVA_TLS,
    "ssl.providers": _ENGINES,
    "ssl.engine.location": _ENGINES,
    "ssl.engine.id": _ENGINES,
    "ssl.curves.list": "OpenSSL's own choice is the one there is",
    "ssl.sigalgs.list": "OpenSSL's own choice is the one there is",
    "ssl.crl.location": "lists of revoked certificates are not read in this version",
    "ssl.client.auth": "it belongs to brokers",
    "sasl.enabled.mechanisms": "it belongs to brokers",
    "enable.sasl.oauthbearer.unsecure.jwt": "tokens without a signature are for tests of brokers; give a token endpoint or "
    "`oauthTokenProvider`",
    "sasl.oauthbearer.config": "tokens without a signature are for tests of brokers; give a token endpoint or "
    "`oauthTokenProvider`",
    "oauth_cb": "no function can be an option; give its name, `module:function`, in `oauthTokenProvider`",
    "sasl.oauthbearer.grant.type": "client credentials are the one grant; for others give `oauthTokenProvider`",
    "sasl.oauthbearer.jwt.retriever.class": _JAVA_TOKENS,
    "sasl.oauthbearer.jwt.validator.class": _JAVA_TOKENS,
    "sasl.oauthbearer.scope.claim.name": _CHECKS,
    "sasl.oauthbearer.sub.claim.name": _CHECKS,
    "sasl.oauthbearer.clock.skew.seconds": _CHECKS,
    "enable.metrics.push": "client telemetry is not part of this version",
    "bootstrap.resolve.timeout.ms": "host names are resolved at each connection; `kafka.max.block.ms` bounds the wait",
    "buffer.memory.allocation.strategy": "a batch has one buffer, allocated whole; with many partitions it is a smaller one",
    "metadata.cluster.check.enable": "the brokers are not asked whether they are still of the same cluster",
}

_ASYNCHRONOUS = (
    "with it Spark notes only now and then which micro-batch is done, and a restart repeats several; leave it out"
)

_FAMILIES: Mapping[str, str] = {
    "sasl.kerberos.": KERBEROS,
    "sasl.oauthbearer.assertion.": "client credentials are the one grant; for others give `oauthTokenProvider`",
    "sasl.oauthbearer.jwks.": _CHECKS,
    "sasl.oauthbearer.expected.": _CHECKS,
    "transaction.two.phase.": "brokers do not offer it yet (KIP-939)",
    "config.providers.": "Java classes cannot run here; fill in secrets and variables where the options are set",
}
"""The reasons for all names that begin like this and are not accepted options."""


OF_THE_SOURCE = (
    "assign",
    "subscribe",
    "subscribePattern",
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "failOnDataLoss",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "groupIdPrefix",
)
"""Options of Spark's Kafka source, which are copied together with those of the sink."""

OF_THE_CHECKPOINT = ("asyncProgressTrackingEnabled", "asyncProgressTrackingCheckpointIntervalMs")
"""Options of a streaming query that weaken its checkpoint, which no sink can see otherwise."""

_OTHERS = {
    "txnAppId": ("Delta's name", "exactlyOnceId"),
    "errors.deadletterqueue.topic.name": ("Kafka Connect's name", "deadLetterTopic"),
    "errors.tolerance": ("Kafka Connect's name", "deadLetterTopic"),
}
"""Options of other writers, whose they are, and what does the same here; Delta's `txnVersion` has the same name."""

LIBRDKAFKA: Mapping[str, str] = {
    "metadata.broker.list": "bootstrap.servers",
    "request.required.acks": "acks",
    "queue.buffering.max.ms": "linger.ms",
    "queue.buffering.max.kbytes": "buffer.memory",
    "message.max.bytes": "max.request.size",
    "message.timeout.ms": "delivery.timeout.ms",
    "message.send.max.retries": "retries",
    "max.in.flight": "max.in.flight.requests.per.connection",
    "compression.codec": "compression.type",
    "partitioner": "partitioner.class",
    "socket.send.buffer.bytes": "send.buffer.bytes",
    "socket.receive.buffer.bytes": "receive.buffer.bytes",
    "topic.metadata.refresh.interval.ms": "metadata.max.age.ms",
}
"""librdkafka's names (its CONFIGURATION.md) of what has another name in Java's producer and here; units may differ."""

_OF_FILES = {
    "badRecordsPath": (
        "executors may share no file system, a task that is tried again would leave files, and no transaction takes them back. "
        "Set deadLetterTopic: bad rows then go to a topic"
    )
}
"""Options that name a file system, and what to do instead."""

_READING = "it belongs to reading; this sink only writes"
_SOURCE_NAMES = frozenset(name.lower() for name in OF_THE_SOURCE)
_CHECKPOINT_NAMES = frozenset(name.lower() for name in OF_THE_CHECKPOINT)
_WRITTEN = {name.lower(): name for name in (*OF_THE_SOURCE, *OF_THE_CHECKPOINT, *_OTHERS, *_OF_FILES)}


def reason_of(name: str) -> str | None:
    """Return why an option, in lower case and without the prefix `kafka.`, is not accepted; None if it is not known here."""
    found = REFUSED.get(name) or (_READING if name in _SOURCE_NAMES else None)
    found = found or (_ASYNCHRONOUS if name in _CHECKPOINT_NAMES else None)
    return found or next((why for family, why in _FAMILIES.items() if name.startswith(family)), None)


def explain_option(raw: str, producer: Mapping[str, str], sink: Mapping[str, str]) -> str:
    """Return why the Spark sink does not take an option.

    `producer` has the current name for each name in lower case that `Producer` takes, `sink` those of the sink's other options.
    """
    name = raw.lower()
    raw = _WRITTEN.get(raw, raw)  # Spark hands over all names in lower case
    bare = _bare(name)
    reason = reason_of(bare)
    if reason and bare not in producer:
        return f"option {raw!r} is not supported: {reason}"
    if name == "path":
        return 'save() and start() take no path here: name the topic with .option("topic", …)'
    known = _WRITTEN.get(name)
    if known in _OF_FILES:
        return f"option {raw!r} is not supported: {_OF_FILES[known]}"
    if known in _OTHERS:
        whose, ours = _OTHERS[known]
        return f"unknown option {raw!r}: that is {whose}. Did you mean {ours!r}?"
    if bare in LIBRDKAFKA:
        return f"unknown option {raw!r}: that is librdkafka's name. Did you mean '{KAFKA_PREFIX}{LIBRDKAFKA[bare]}'?"
    known_names = {each: _with_prefix(current) for each, current in producer.items()}
    right = known_names.get(bare, "")
    if not name.startswith(KAFKA_PREFIX) and right.startswith(KAFKA_PREFIX):
        return f"unknown option {raw!r}: options of the producer carry a prefix. Did you mean {right!r}?"
    if right.startswith(KAFKA_PREFIX):
        return f"unknown option {raw!r}: the prefix is there more than once. Write {right!r}"
    # Names are compared without the prefix, whose six characters would make any two of them look alike.
    return _unknown(raw, bare, known_names | dict(sink))


def _with_prefix(name: str) -> str:
    """Return the data source's name of a producer option: only Kafka's names have the prefix, and they are in lower case."""
    return KAFKA_PREFIX + name if name.islower() else name


def explain_producer_option(raw: str, producer: Mapping[str, str]) -> str:
    """Return why `Producer` does not take an option.

    `producer` has the current name for each name in lower case that `Producer` takes.
    """
    name = raw.lower()
    bare = _bare(name)
    reason = reason_of(bare)
    if reason and bare not in producer:
        return f"option {raw!r} is not supported: {reason}"
    if bare in LIBRDKAFKA:
        return f"unknown option {raw!r}: that is librdkafka's name. Did you mean {LIBRDKAFKA[bare]!r}?"
    if name != bare and bare in producer:
        return f"unknown option {raw!r}: Producer takes names without the prefix `kafka.`. Write {producer[bare]!r}"
    return _unknown(raw, bare, producer)


def _bare(name: str) -> str:
    """Return a name in lower case without the prefix, which some users give twice."""
    while name.startswith(KAFKA_PREFIX):
        name = name.removeprefix(KAFKA_PREFIX)
    return name


def _unknown(raw: str, name: str, by_lower: Mapping[str, str]) -> str:
    near = difflib.get_close_matches(name, by_lower, n=1, cutoff=0.7)
    hint = f" Did you mean {by_lower[near[0]]!r}?" if near else ""
    return f"unknown option {raw!r}.{hint} `pyproducer options` lists them all."


def render_markdown() -> str:
    """Return the refused names and their reasons, for docs/options.md."""
    lines = ["| option | why not |", "|---|---|"]
    named: dict[str, list[str]] = {}
    for name, why in (*REFUSED.items(), *((f"{family}…", why) for family, why in _FAMILIES.items())):
        named.setdefault(why, []).append(f"`kafka.{name}`")
    lines += [f"| {', '.join(names)} | {why} |" for why, names in named.items()]
    lines.append(f"| {', '.join(f'`{name}`' for name in OF_THE_SOURCE)} | {_READING} |")
    lines.append(f"| {', '.join(f'`{name}`' for name in OF_THE_CHECKPOINT)} | {_ASYNCHRONOUS} |")
    lines.append(f"| `badRecordsPath` | {_OF_FILES['badRecordsPath']} |")
    return "\n".join(lines) + "\n"
