"""Names of options that people copy from elsewhere: each is taken, or refused with its own reason. Ids (tests/ids.md): KP."""

from __future__ import annotations

import dataclasses

import pytest

from spark_producer.config import ProducerConfig, kafka_name
from spark_producer.config.unsupported import SOURCE_OPTIONS, unsupported_reason
from tests.unit.config.options import SERVERS, refused

FIELDS = dataclasses.fields(ProducerConfig)

KAFKA = [
    "bootstrap.servers",
    "client.dns.lookup",
    "bootstrap.resolve.timeout.ms",
    "buffer.memory",
    "buffer.memory.allocation.strategy",
    "batch.size",
    "linger.ms",
    "delivery.timeout.ms",
    "request.timeout.ms",
    "max.block.ms",
    "retries",
    "retry.backoff.ms",
    "retry.backoff.max.ms",
    "acks",
    "enable.idempotence",
    "max.in.flight.requests.per.connection",
    "transactional.id",
    "transaction.timeout.ms",
    "transaction.two.phase.commit.enable",
    "max.request.size",
    "compression.type",
    "compression.gzip.level",
    "compression.lz4.level",
    "compression.zstd.level",
    "partitioner.class",
    "partitioner.adaptive.partitioning.enable",
    "partitioner.availability.timeout.ms",
    "partitioner.ignore.keys",
    "partitioner.rack.aware",
    "client.rack",
    "client.id",
    "send.buffer.bytes",
    "receive.buffer.bytes",
    "reconnect.backoff.ms",
    "reconnect.backoff.max.ms",
    "socket.connection.setup.timeout.ms",
    "socket.connection.setup.timeout.max.ms",
    "connections.max.idle.ms",
    "metadata.max.age.ms",
    "metadata.max.idle.ms",
    "metadata.recovery.strategy",
    "metadata.recovery.rebootstrap.trigger.ms",
    "metadata.cluster.check.enable",
    "enable.metrics.push",
    "metrics.sample.window.ms",
    "metrics.num.samples",
    "metrics.recording.level",
    "metric.reporters",
    "auto.include.jmx.reporter",
    "interceptor.classes",
    "config.providers",
    "key.serializer",
    "value.serializer",
    "security.protocol",
    "ssl.protocol",
    "ssl.provider",
    "ssl.cipher.suites",
    "ssl.enabled.protocols",
    "ssl.keystore.type",
    "ssl.keystore.key",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.key.password",
    "ssl.truststore.type",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.truststore.certificates",
    "ssl.keymanager.algorithm",
    "ssl.trustmanager.algorithm",
    "ssl.endpoint.identification.algorithm",
    "ssl.secure.random.implementation",
    "ssl.engine.factory.class",
    "sasl.mechanism",
    "sasl.jaas.config",
    "sasl.client.callback.handler.class",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.kerberos.service.name",
    "sasl.kerberos.kinit.cmd",
    "sasl.kerberos.ticket.renew.window.factor",
    "sasl.kerberos.ticket.renew.jitter",
    "sasl.kerberos.min.time.before.relogin",
    "sasl.login.refresh.window.factor",
    "sasl.login.refresh.window.jitter",
    "sasl.login.refresh.min.period.seconds",
    "sasl.login.refresh.buffer.seconds",
    "sasl.login.connect.timeout.ms",
    "sasl.login.read.timeout.ms",
    "sasl.login.retry.backoff.ms",
    "sasl.login.retry.backoff.max.ms",
    "sasl.oauthbearer.jwt.retriever.class",
    "sasl.oauthbearer.jwt.validator.class",
    "sasl.oauthbearer.scope",
    "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.credentials.client.secret",
    "sasl.oauthbearer.assertion.algorithm",
    "sasl.oauthbearer.assertion.claim.aud",
    "sasl.oauthbearer.assertion.private.key.file",
    "sasl.oauthbearer.scope.claim.name",
    "sasl.oauthbearer.sub.claim.name",
    "sasl.oauthbearer.token.endpoint.url",
    "sasl.oauthbearer.jwks.endpoint.url",
    "sasl.oauthbearer.jwks.endpoint.refresh.ms",
    "sasl.oauthbearer.clock.skew.seconds",
    "sasl.oauthbearer.expected.audience",
    "sasl.oauthbearer.expected.issuer",
    "sasl.oauthbearer.header.urlencode",
    "security.providers",
]
"""All options of Kafka's producer up to 4.4 (of sasl.oauthbearer.assertion a few)."""


@pytest.mark.covers("KP2", "KP4", "KP19")
@pytest.mark.parametrize("name", KAFKA)
def test_every_option_of_kafka_is_known(name: str) -> None:
    """An option is in the table, or refused with its own reason: never merely unknown."""
    if name in {kafka_name(field.name) for field in FIELDS}:
        return
    refused(SERVERS | {f"kafka.{name}": "1"}, "is not supported: ", unsupported_reason(name) or "a reason")


@pytest.mark.parametrize("name", SOURCE_OPTIONS)
def test_every_option_of_sparks_source_is_known(name: str) -> None:
    """These options come along when the options of a read are copied."""
    refused(SERVERS | {name: "1"}, f"{name!r} is not supported: it is for reads. Leave it out of writes")
