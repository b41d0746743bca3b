"""Options that are not supported, and the messages about them.

The message has the reason for names of Kafka and Spark, and the nearest known name for any other.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from spark_producer.config.source_options import SOURCE_FIELDS

KAFKA_PREFIX = "kafka."
"""The prefix of Kafka's names among the options of the Spark sink."""

_CONSUMERS = "it belongs to consumers"
_JAVA = "Java classes cannot run here"
_CAST = "keys and values are string or binary columns. Cast the column instead"
_JAVA_TLS = "Java's TLS does not run here, and OpenSSL's has no such option"
_JAVA_TOKENS = "Java classes cannot run here. Give a token endpoint or `oauthTokenProvider`"
_ENGINES = "OpenSSL is configured for Python as a whole"
_CHECKS = "brokers validate tokens; a client only sends them"

SECURITY_UNSUPPORTED: dict[str, str] = {
    "config.providers": "Java classes cannot run here; resolve secrets and variables where options are set",
    "security.providers": _JAVA,
    "sasl.login.class": _JAVA,
    "sasl.kerberos.kinit.cmd": (
        "no command is run: a keytab's ticket is renewed without one, and a ticket cache is read again. Drop it"
    ),
    "ssl.engine.factory.class": _JAVA,
    "ssl.provider": _JAVA_TLS,
    "ssl.keymanager.algorithm": _JAVA_TLS,
    "ssl.trustmanager.algorithm": _JAVA_TLS,
    "ssl.secure.random.implementation": _JAVA_TLS,
    "ssl.providers": _ENGINES,
    "ssl.engine.location": _ENGINES,
    "ssl.engine.id": _ENGINES,
    "ssl.curves.list": "OpenSSL chooses",
    "ssl.sigalgs.list": "OpenSSL chooses",
    "ssl.crl.location": "certificate revocation lists are not supported",
    "ssl.client.auth": "it belongs to brokers",
    "sasl.enabled.mechanisms": "it belongs to brokers",
    "enable.sasl.oauthbearer.unsecure.jwt": "unsigned tokens are for tests. Give a token endpoint or `oauthTokenProvider`",
    "sasl.oauthbearer.config": "unsigned tokens are for tests. Give a token endpoint or `oauthTokenProvider`",
    "oauth_cb": "give the function's name, `module:function`, in `oauthTokenProvider`",
    "sasl.oauthbearer.grant.type": "client credentials are the only grant; for others give `oauthTokenProvider`",
    "sasl.oauthbearer.jwt.retriever.class": (
        "the URL of the token endpoint decides: https:// asks an endpoint, file:/// reads a file. Drop it"
    ),
    "sasl.oauthbearer.jwt.validator.class": _JAVA_TOKENS,
    "sasl.oauthbearer.scope.claim.name": _CHECKS,
    "sasl.oauthbearer.sub.claim.name": _CHECKS,
    "sasl.oauthbearer.clock.skew.seconds": _CHECKS,
}
"""The reason for names that neither writes nor reads take: those of security, of Java classes, and of what clients do alike."""

UNSUPPORTED: Mapping[str, str] = {
    "key.serializer": _CAST,
    "value.serializer": _CAST,
    "interceptor.classes": "Java classes cannot run here. Change the DataFrame before the write",
    "metric.reporters": "Java classes cannot run here; metrics are in the commit log line",
    "auto.include.jmx.reporter": "Java classes cannot run here; metrics are in the commit log line",
    "group.id": _CONSUMERS,
    "auto.offset.reset": _CONSUMERS,
    "isolation.level": "it belongs to consumers, which set `read_committed` (docs/exactly_once.md)",
    "fetch.min.bytes": _CONSUMERS,
    "fetch.max.bytes": _CONSUMERS,
    "fetch.max.wait.ms": _CONSUMERS,
    "max.partition.fetch.bytes": _CONSUMERS,
    "check.crcs": _CONSUMERS,
    "default.api.timeout.ms": _CONSUMERS,
    "bootstrap.resolve.timeout.ms": "`kafka.max.block.ms` bounds the wait",
    "buffer.memory.allocation.strategy": "each batch has one buffer, smaller with many partitions",
} | SECURITY_UNSUPPORTED
"""The reason for names that writes do not take."""

_ASYNCHRONOUS = (
    "with it Spark saves its progress only from time to time, and a restart repeats several micro-batches. Leave it out"
)

_FAMILIES: Mapping[str, str] = {
    "sasl.oauthbearer.assertion.": "client credentials are the only grant; for others give `oauthTokenProvider`",
    "sasl.oauthbearer.jwks.": _CHECKS,
    "sasl.oauthbearer.expected.": _CHECKS,
    "transaction.two.phase.": "brokers do not offer it yet (KIP-939)",
    "config.providers.": "Java classes cannot run here; resolve secrets and variables where options are set",
}
"""The reason for all unsupported names that begin with a prefix."""


_SHARED = ("profile", "includeHeaders", "valueFormat", "keyFormat", "valueMessage", "keyMessage")
"""Options of reads that writes have too."""

SOURCE_OPTIONS = (
    *(name for name in SOURCE_FIELDS if name not in _SHARED),
    "value.schema.id.deserializer",
    "key.schema.id.deserializer",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
)
"""Options of reads alone, and of Spark's Kafka source, which users copy with those of the sink."""

CHECKPOINT_OPTIONS = ("asyncProgressTrackingEnabled", "asyncProgressTrackingCheckpointIntervalMs")
"""Options of a streaming query that weaken its checkpoint, which a sink cannot notice otherwise."""

_NAMES_OF_OTHERS = {
    "txnAppId": ("Delta's name", "exactlyOnceId"),
    "errors.deadletterqueue.topic.name": ("Kafka Connect's name", "deadLetterTopic"),
    "errors.tolerance": ("Kafka Connect's name", "deadLetterTopic"),
}
"""Options of other writers: the writer, and the equivalent option here. Delta's `txnVersion` has the same name here."""

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
"""Kafka's name for options with another name in librdkafka (its CONFIGURATION.md); units may differ."""

_FILE_OPTIONS = {
    "badRecordsPath": (
        "files of a retried task would stay, without a transaction to abort. Set deadLetterTopic to send bad rows to a topic"
    )
}
"""Options that name a file system, and the alternative."""

_READING = "it is for reads. Leave it out of writes"
_SOURCE_NAMES = frozenset(name.lower() for name in SOURCE_OPTIONS)
_CHECKPOINT_NAMES = frozenset(name.lower() for name in CHECKPOINT_OPTIONS)
_WITH_CAPITALS = {
    name.lower(): name for name in (*SOURCE_OPTIONS, *CHECKPOINT_OPTIONS, *_NAMES_OF_OTHERS, *_FILE_OPTIONS)
}


def unsupported_reason(name: str) -> str | None:
    """Return why an option, in lower case and without the prefix `kafka.`, is not supported; None if the name is unknown."""
    found = UNSUPPORTED.get(name) or (_READING if name in _SOURCE_NAMES else None)
    found = found or (_ASYNCHRONOUS if name in _CHECKPOINT_NAMES else None)
    return found or family_reason(name)


def family_reason(name: str) -> str | None:
    """Return why the family of an option is not supported; None if the option is in no such family.

    `name` is in lower case, without the prefix.
    """
    return next((why for family, why in _FAMILIES.items() if name.startswith(family)), None)


def explain_option(raw: str, producer: Mapping[str, str], sink: Mapping[str, str]) -> str:
    """Return why the Spark sink does not take an option.

    `producer` has the current name for each name in lower case that `Producer` takes, `sink` those of the sink's other options.
    """
    name = raw.lower()
    raw = _WITH_CAPITALS.get(raw, raw)  # Spark hands over all names in lower case
    bare = bare_name(name)
    reason = unsupported_reason(bare)
    if reason and bare not in producer:
        return f"option {raw!r} is not supported: {reason}"
    if name == "path":
        return 'save() and start() take no path. Name the topic with .option("topic", …)'
    known = _WITH_CAPITALS.get(name)
    if known in _FILE_OPTIONS:
        return f"option {raw!r} is not supported: {_FILE_OPTIONS[known]}"
    if known in _NAMES_OF_OTHERS:
        whose, ours = _NAMES_OF_OTHERS[known]
        return f"unknown option {raw!r}: it is {whose}. Did you mean {ours!r}?"
    if bare in LIBRDKAFKA:
        return f"unknown option {raw!r}: it is librdkafka's name. Did you mean '{KAFKA_PREFIX}{LIBRDKAFKA[bare]}'?"
    known_names = {each: with_prefix(current) for each, current in producer.items()}
    right = known_names.get(bare, "")
    if right.startswith(KAFKA_PREFIX):
        return wrong_prefix(raw, right)
    # Names are compared without the prefix, whose six characters would make any two of them similar.
    return nearest(raw, bare, known_names | dict(sink))


def wrong_prefix(raw: str, right: str) -> str:
    """Return the message that the option `raw` is `right` without the prefix `kafka.`, or with more than one."""
    if raw.lower().startswith(KAFKA_PREFIX):
        return f"unknown option {raw!r}: the prefix `kafka.` is repeated. Write {right!r}"
    return f"unknown option {raw!r}: options of Kafka have the prefix `kafka.`. Did you mean {right!r}?"


def with_prefix(name: str) -> str:
    """Return the data source's name of a producer option: only Kafka's names have the prefix, and they are in lower case."""
    return KAFKA_PREFIX + name if name.islower() else name


def explain_producer_option(raw: str, producer: Mapping[str, str]) -> str:
    """Return why `Producer` does not take an option.

    `producer` has the current name for each name in lower case that `Producer` takes.
    """
    name = raw.lower()
    bare = bare_name(name)
    reason = unsupported_reason(bare)
    if reason and bare not in producer:
        return f"option {raw!r} is not supported: {reason}"
    if bare in LIBRDKAFKA:
        return f"unknown option {raw!r}: it is librdkafka's name. Did you mean {LIBRDKAFKA[bare]!r}?"
    if name != bare and bare in producer:
        return f"unknown option {raw!r}: Producer takes names without the prefix `kafka.`. Write {producer[bare]!r}"
    return nearest(raw, bare, producer)


def bare_name(name: str) -> str:
    """Return a name in lower case without the prefix, even if it is repeated."""
    while name.startswith(KAFKA_PREFIX):
        name = name.removeprefix(KAFKA_PREFIX)
    return name


def nearest(raw: str, name: str, by_lower: Mapping[str, str]) -> str:
    """Return the message about an unknown name, with the nearest known one: `by_lower` has the current name for each."""
    near = difflib.get_close_matches(name, by_lower, n=1, cutoff=0.7)
    hint = f" Did you mean {by_lower[near[0]]!r}?" if near else ""
    return f"unknown option {raw!r}.{hint} `pyproducer options` lists them all."


def render_markdown() -> str:
    """Return the unsupported names and their reasons, for docs/options.md."""
    lines = ["| option | reason |", "|---|---|"]
    named: dict[str, list[str]] = {}
    for name, why in (*UNSUPPORTED.items(), *((f"{family}…", why) for family, why in _FAMILIES.items())):
        named.setdefault(why, []).append(f"`kafka.{name}`")
    lines += [f"| {', '.join(names)} | {why} |" for why, names in named.items()]
    lines.append(f"| {', '.join(f'`{name}`' for name in SOURCE_OPTIONS)} | {_READING} |")
    lines.append(f"| {', '.join(f'`{name}`' for name in CHECKPOINT_OPTIONS)} | {_ASYNCHRONOUS} |")
    lines.append(f"| `badRecordsPath` | {_FILE_OPTIONS['badRecordsPath']} |")
    return "\n".join(lines) + "\n"
