"""Names of the options of security, and whether the protocol uses them. Ids (tests/ids.md): SEC."""

from __future__ import annotations

import pytest

from spark_producer.config import ALIASES, KAFKA_FIELDS, parse_options, producer_config
from spark_producer.config.option import is_secret
from spark_producer.config.tls_rules import SUITES_12
from spark_producer.errors import ConfigError
from tests.unit.config.secured import CANARY, LOGIN, PEM, SSL, TOKENS, config, refusal

VALUES = {
    "ssl.ca.location": ("ca.pem", "other.pem"),
    "ssl.ca.pem": (PEM, PEM + CANARY),
    "ssl.key.pem": (PEM, CANARY),
    "ssl.certificate.pem": (PEM, PEM + CANARY),
    "sasl.mechanisms": ("SCRAM-SHA-512", "SCRAM-SHA-256"),
    "sasl.oauthbearer.client.id": ("c", "d"),
    "sasl.oauthbearer.client.secret": (CANARY, CANARY + CANARY),
}
BESIDE = {
    "ssl.key.pem": {**SSL, "ssl.certificate.pem": PEM},
    "ssl.certificate.pem": {**SSL, "ssl.key.pem": PEM},
    "sasl.mechanisms": LOGIN,
}


@pytest.mark.covers("SEC11")
def test_every_alias_has_its_values_here() -> None:
    assert set(VALUES) == set(ALIASES)


@pytest.mark.covers("SEC11")
@pytest.mark.parametrize("alias", ALIASES)
def test_an_alias_is_its_option_and_two_values_are_a_contradiction(alias: str) -> None:
    name, (value, other) = ALIASES[alias], VALUES[alias]
    beside = BESIDE.get(alias, TOKENS if "oauthbearer" in alias else SSL)
    beside = {key: text for key, text in beside.items() if key not in (alias, name)}
    assert (
        config(beside, {alias: value}) == config(beside, {name: value}) == config(beside, {alias: value, name: value})
    )
    assert config(beside, {alias.upper(): value}) == config(beside, {name: value})
    message = refusal(beside, {alias: value, name: other})
    assert (
        message
        == f"kafka.{alias} and kafka.{name} are two names of one option, with different values. Give kafka.{name} alone"
    )


@pytest.mark.covers("SEC11")
def test_what_is_set_itself_wins_over_a_profile_under_another_name(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    path = tmp_path_factory.mktemp("profiles") / "a.properties"
    path.write_text("sasl.mechanisms=PLAIN\nsasl.username=u\nsasl.password=p\nsecurity.protocol=SASL_SSL\n", "utf-8")
    assert config({"profile": str(path)}).sasl_mechanism == "PLAIN"
    assert config({"profile": str(path), "sasl.mechanism": "SCRAM-SHA-256"}).sasl_mechanism == "SCRAM-SHA-256"


@pytest.mark.covers("SEC11")
@pytest.mark.parametrize(
    ("protocol", "option", "value", "wanted"),
    [
        ("PLAINTEXT", "ssl.ca.location", "ca.pem", "SSL"),
        ("PLAINTEXT", "ssl.keystore.password", CANARY, "SSL"),
        ("PLAINTEXT", "ssl.endpoint.identification.algorithm", "", "SSL"),
        ("PLAINTEXT", "enable.ssl.certificate.verification", "false", "SSL"),
        ("PLAINTEXT", "sasl.password", CANARY, "SASL_SSL"),
        ("PLAINTEXT", "sasl.jaas.config", CANARY, "SASL_SSL"),
        ("PLAINTEXT", "https.ca.pem", PEM, "SASL_SSL"),
        ("SSL", "sasl.mechanism", "PLAIN", "SASL_SSL"),
        ("SSL", "sasl.login.refresh.buffer.seconds", "1", "SASL_SSL"),
        ("SASL_PLAINTEXT", "ssl.cipher.suites", SUITES_12[0], "SASL_SSL"),
    ],
)
def test_what_the_protocol_does_not_use_is_an_error(protocol: str, option: str, value: str, wanted: str) -> None:
    login = (
        {**LOGIN, "security.protocol": protocol} if protocol == "SASL_PLAINTEXT" else {"security.protocol": protocol}
    )
    message = refusal(login, {option: value})
    assert f"kafka.{option}" in message.partition(" is set, but ")[0]
    assert message.endswith(f"{protocol} does not use it. Set kafka.security.protocol to {wanted}, or drop it")


@pytest.mark.covers("SEC11")
def test_tls_and_login_without_a_protocol_want_both() -> None:
    assert "Set kafka.security.protocol to SASL_SSL" in refusal(
        {"ssl.ca.location": "ca.pem", "sasl.mechanism": "PLAIN"}
    )


def test_values_at_their_defaults_contradict_nothing() -> None:
    plain = {name: str(field.default) for name, field in KAFKA_FIELDS.items() if name.startswith(("ssl.", "sasl."))
             and not is_secret(field)}  # fmt: skip
    assert config(plain, {"sasl.password": " ", "ssl.key.password": ""}) == config()


@pytest.mark.covers("SEC11")
@pytest.mark.parametrize("protocol", ["sasl_ssl", "Sasl_Plaintext"])
def test_a_login_needs_a_mechanism_and_java_s_default_is_named(protocol: str) -> None:
    message = refusal({"security.protocol": protocol, "sasl.username": "u", "sasl.password": CANARY})
    assert f"kafka.security.protocol is {protocol.upper()}, which needs kafka.sasl.mechanism (or " in message
    assert "Java's default is GSSAPI (Kerberos): set that, or another mechanism" in message


@pytest.mark.covers("SEC11")
@pytest.mark.parametrize(
    "option",
    ["sasl.password", "ssl.endpoint.identification.algorithm", "enable.ssl.certificate.verification", "client.id"],
)
def test_an_option_that_is_none_is_an_error(option: str) -> None:
    """A value from the environment may be None: it must not become the password "None", or `none` for no check of host names."""
    for read in (parse_options, producer_config):
        prefix = "kafka." if read is parse_options else ""
        with pytest.raises(ConfigError, match=f"kafka.{option} is None"):
            read({f"{prefix}bootstrap.servers": "broker:9092", f"{prefix}{option}": None})
