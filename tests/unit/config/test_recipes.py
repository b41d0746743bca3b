"""The options that cloud platforms document for their users are accepted unchanged. Ids (tests/ids.md): SEC."""

from __future__ import annotations

import pytest

from spark_producer.common.secret import Secret
from spark_producer.config import ProducerConfig, data_source_name, parse_options, producer_config
from spark_producer.network.security_options import security_settings
from spark_producer.security import OidcSettings, SaslSettings, SecuritySettings, Store, TlsSettings

TLS = TlsSettings()
PASSWORD = Secret("s3cr3t")
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
IAM = "software.amazon.msk.auth.iam"
AMAZONS = SaslSettings("OAUTHBEARER", provider="aws-msk-iam")
EXTENSIONS = (("logicalCluster", "lkc-1"), ("identityPoolId", "pool-1"))
OIDC = OidcSettings("https://idp.example.org/token", "id", PASSWORD)

RECIPES: dict[str, tuple[dict[str, str], SecuritySettings]] = {
    "Confluent Cloud, confluent-kafka": (
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanisms": "PLAIN",
            "sasl.username": "API_KEY",
            "sasl.password": "s3cr3t",
        },
        SecuritySettings(TLS, SaslSettings("PLAIN", "API_KEY", PASSWORD)),
    ),
    "Confluent Cloud, Java": (
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": f"{PLAIN_MODULE} required username='API_KEY' password='s3cr3t';",
            "ssl.endpoint.identification.algorithm": "https",
            "client.dns.lookup": "use_all_dns_ips",
        },
        SecuritySettings(TLS, SaslSettings("PLAIN", "API_KEY", PASSWORD)),
    ),
    "Confluent Cloud, OAuth, confluent-kafka": (
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanisms": "OAUTHBEARER",
            "sasl.oauthbearer.method": "OIDC",
            "sasl.oauthbearer.client.id": "id",
            "sasl.oauthbearer.client.secret": "s3cr3t",
            "sasl.oauthbearer.token.endpoint.url": "https://idp.example.org/token",
            "sasl.oauthbearer.extensions": "logicalCluster=lkc-1,identityPoolId=pool-1",
        },
        SecuritySettings(TLS, SaslSettings("OAUTHBEARER", extensions=EXTENSIONS, oidc=OIDC)),
    ),
    "Confluent Cloud, OAuth, Java": (
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.login.callback.handler.class": f"{OAUTH_MODULE.rpartition('.')[0]}.secured.OAuthBearerLoginCallbackHandler",
            "sasl.oauthbearer.token.endpoint.url": "https://idp.example.org/token",
            "sasl.jaas.config": f"{OAUTH_MODULE} required clientId='id' clientSecret='s3cr3t' "
            "extension_logicalCluster='lkc-1' extension_identityPoolId='pool-1';",
        },
        SecuritySettings(TLS, SaslSettings("OAUTHBEARER", extensions=EXTENSIONS, oidc=OIDC)),
    ),
    "MSK with SCRAM": (
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": f'{SCRAM_MODULE} required username="u" password="s3cr3t";',
        },
        SecuritySettings(TLS, SaslSettings("SCRAM-SHA-512", "u", PASSWORD)),
    ),
    "MSK with IAM": (
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "AWS_MSK_IAM",
            "sasl.jaas.config": f"{IAM}.IAMLoginModule required;",
            "sasl.client.callback.handler.class": f"{IAM}.IAMClientCallbackHandler",
        },
        SecuritySettings(TLS, AMAZONS),
    ),
    "MSK with IAM on Databricks": (
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "AWS_MSK_IAM",
            "sasl.jaas.config": f"shadedmskiam.{IAM}.IAMLoginModule required;",
            "sasl.client.callback.handler.class": f"shadedmskiam.{IAM}.IAMClientCallbackHandler",
        },
        SecuritySettings(TLS, AMAZONS),
    ),
    "MSK with IAM by OAUTHBEARER": (
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.jaas.config": f"{OAUTH_MODULE} required;",
            "sasl.login.callback.handler.class": f"{IAM}.IAMOAuthBearerLoginCallbackHandler",
        },
        SecuritySettings(TLS, AMAZONS),
    ),
    "MSK with IAM and a role": (
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "AWS_MSK_IAM",
            "sasl.jaas.config": f'{IAM}.IAMLoginModule required awsRoleArn="arn:aws:iam::1:role/r" awsRoleSessionName="s";',
        },
        SecuritySettings(
            TLS,
            SaslSettings(
                "OAUTHBEARER",
                provider="aws-msk-iam",
                provider_options=(("awsRoleArn", "arn:aws:iam::1:role/r"), ("awsRoleSessionName", "s")),
            ),
        ),
    ),
    "Event Hubs": (
        {
            "profile": "event-hubs",
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "$ConnectionString",
            "sasl.password": "Endpoint=sb://ns.servicebus.windows.net/;SharedAccessKeyName=k;SharedAccessKey=s3=",
        },
        SecuritySettings(
            TLS,
            SaslSettings(
                "PLAIN",
                "$ConnectionString",
                Secret("Endpoint=sb://ns.servicebus.windows.net/;SharedAccessKeyName=k;SharedAccessKey=s3="),
            ),
        ),
    ),
    "Event Hubs, Java": (
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": f'kafkashaded.{PLAIN_MODULE} required username="$ConnectionString" password="Endpoint=sb://x/;k=s=";',
        },
        SecuritySettings(TLS, SaslSettings("PLAIN", "$ConnectionString", Secret("Endpoint=sb://x/;k=s="))),
    ),
    "Aiven, certificates": (
        {
            "security.protocol": "SSL",
            "ssl.ca.location": "ca.pem",
            "ssl.certificate.location": "service.cert",
            "ssl.key.location": "service.key",
        },
        SecuritySettings(
            TlsSettings(trust=Store("ca.pem"), identity=Store("service.cert", key_location="service.key"))
        ),
    ),
    "Aiven, Java": (
        {
            "security.protocol": "SSL",
            "ssl.truststore.location": "client.truststore.jks",
            "ssl.truststore.password": "s3cr3t",
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": "client.keystore.p12",
            "ssl.keystore.password": "s3cr3t",
            "ssl.key.password": "s3cr3t",
        },
        SecuritySettings(
            TlsSettings(
                trust=Store("client.truststore.jks", password=PASSWORD),
                identity=Store("client.keystore.p12", "PKCS12", password=PASSWORD, key_password=PASSWORD),
            )
        ),
    ),
    "Aiven, SASL": (
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": "avnadmin",
            "sasl.password": "s3cr3t",
            "ssl.ca.location": "ca.pem",
        },
        SecuritySettings(TlsSettings(trust=Store("ca.pem")), SaslSettings("SCRAM-SHA-256", "avnadmin", PASSWORD)),
    ),
    "Redpanda": (
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": "u",
            "sasl.password": "s3cr3t",
        },
        SecuritySettings(TLS, SaslSettings("SCRAM-SHA-256", "u", PASSWORD)),
    ),
    "Strimzi": (
        {
            "security.protocol": "SSL",
            "ssl.ca.location": "/mnt/cluster/ca.crt",
            "ssl.certificate.location": "/mnt/user/user.crt",
            "ssl.key.location": "/mnt/user/user.key",
        },
        SecuritySettings(
            TlsSettings(
                trust=Store("/mnt/cluster/ca.crt"),
                identity=Store("/mnt/user/user.crt", key_location="/mnt/user/user.key"),
            )
        ),
    ),
    "Strimzi, PKCS12": (
        {
            "security.protocol": "SSL",
            "ssl.ca.location": "/mnt/cluster/ca.crt",
            "ssl.keystore.location": "/mnt/user/user.p12",
            "ssl.keystore.password": "${file:/mnt/user/user.password}",
            "secretsAllow": "file:/mnt/user/",
        },
        SecuritySettings(
            TlsSettings(
                trust=Store("/mnt/cluster/ca.crt"),
                identity=Store("/mnt/user/user.p12", password=Secret("${file:/mnt/user/user.password}")),
            ),
            allowed_secrets=("file:/mnt/user/",),
        ),
    ),
}


def configured(options: dict[str, str]) -> ProducerConfig:
    """Return the options as `Producer` parses them, with which the data source must agree."""
    given = {"bootstrap.servers": "one.example.org:9093"} | options
    config = producer_config(given)
    prefixed = {name if name == "profile" else data_source_name(name).title(): value for name, value in given.items()}
    assert parse_options(prefixed)[0] == config
    return config


@pytest.mark.covers("SEC12")
@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_is_taken_as_it_is(name: str) -> None:
    options, expected = RECIPES[name]
    assert security_settings(configured(options)) == expected


@pytest.mark.covers("SEC12")
def test_event_hubs_gets_requests_that_it_takes() -> None:
    config = configured(RECIPES["Event Hubs"][0])
    assert (config.max_request_size, config.batch_size) == (1_000_000, 900_000)
    assert (config.connections_max_idle_ms, config.metadata_max_age_ms) == (180_000, 180_000)
