"""Sufficient options for tests of the rules of security, and the errors of wrong ones."""

from __future__ import annotations

import pytest

from spark_producer.config import ProducerConfig, producer_config
from spark_producer.errors import ConfigError

CANARY = "Kanarienvogel77"
SERVERS = {"bootstrap.servers": "one.example.org:9093"}
SSL = {"security.protocol": "SSL"}
LOGIN = {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "u", "sasl.password": "p"}
TOKENS = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.token.endpoint.url": "https://idp.example.org/token",
    "sasl.oauthbearer.client.id": "c",
    "sasl.oauthbearer.client.secret": CANARY,
}
PROVIDER = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER", "oauthTokenProvider": "m:f"}
MSK = {"security.protocol": "SASL_SSL", "sasl.mechanism": "AWS_MSK_IAM"}
PEM = "-----BEGIN CERTIFICATE-----"
JAAS = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="u" password="p";'
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"


def config(*options: dict[str, str]) -> ProducerConfig:
    merged = dict(SERVERS)
    for some in options:
        merged |= some
    return producer_config(merged)


def refusal(*options: dict[str, str]) -> str:
    with pytest.raises(ConfigError) as refused:
        config(*options)
    assert CANARY not in str(refused.value)
    return str(refused.value)
