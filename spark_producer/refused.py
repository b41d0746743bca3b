"""Options of Kafka's producer, and a few of other clients, that are known and not accepted, each with the reason.

Owns: these names and reasons. Must not know: the options that are accepted.
"""

from __future__ import annotations

from collections.abc import Mapping

REFUSED: Mapping[str, str] = {
    "key.serializer": "keys are string or binary columns and go out as they are; cast the column instead",
    "value.serializer": "values are string or binary columns and go out as they are; cast the column instead",
    "interceptor.classes": "Java classes cannot run here; change the rows with DataFrame operations before the write",
    "metric.reporters": "Java classes cannot run here; the commit log line reports what was written",
    "auto.include.jmx.reporter": "there is no JVM, so no JMX; the commit log line reports what was written",
    "config.providers": "Java classes cannot run here; fill in secrets and variables where the options are set",
    "security.providers": "Java classes cannot run here",
    "transactional.id": "transactions are not part of this version; delivery is at-least-once",
    "group.id": "it belongs to consumers; this sink only writes",
    "auto.offset.reset": "it belongs to consumers; this sink only writes",
    "sasl.mechanism": "SASL is not part of this version",
    "sasl.jaas.config": "SASL is not part of this version",
    "enable.metrics.push": "client telemetry is not part of this version",
    "bootstrap.resolve.timeout.ms": "host names are resolved at each connection; `kafka.max.block.ms` bounds the wait",
    "buffer.memory.allocation.strategy": "a batch has one buffer, allocated whole; with many partitions it is a smaller one",
    "metadata.cluster.check.enable": "the brokers are not asked whether they are still of the same cluster",
}

_FAMILIES: Mapping[str, str] = {
    "ssl.": "TLS is not part of this version",
    "sasl.": "SASL is not part of this version",
    "transaction.": "transactions are not part of this version; delivery is at-least-once",
    "config.providers.": "Java classes cannot run here; fill in secrets and variables where the options are set",
}
"""The same for all names that begin so, and are not accepted by themselves."""


def reason_of(name: str) -> str | None:
    """Why an option, in lower case and without the prefix `kafka.`, is not accepted; None: it is not known here."""
    found = REFUSED.get(name)
    return found or next((why for family, why in _FAMILIES.items() if name.startswith(family)), None)


def render_markdown() -> str:
    """The refused names and their reasons, for docs/options.md."""
    lines = ["| option | why not |", "|---|---|"]
    lines += [f"| `kafka.{name}` | {why} |" for name, why in REFUSED.items()]
    lines += [f"| `kafka.{family}…` | {why} |" for family, why in _FAMILIES.items()]
    return "\n".join(lines) + "\n"
