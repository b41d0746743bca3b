"""The options of security as settings of connections, and the warnings at a start. Ids (tests/ids.md): SEC."""

from __future__ import annotations

import logging
import pickle
from pathlib import Path
from random import Random

import pytest

from spark_producer.common.secret import Secret
from spark_producer.config import ProducerConfig, producer_config
from spark_producer.errors import AuthenticationFailed, ConfigError
from spark_producer.metrics import unread_metrics
from spark_producer.network import Client, ConnectionSettings
from spark_producer.network.auth import make_logins
from spark_producer.network.authentication import Authenticator
from spark_producer.network.node import NodeConnection
from spark_producer.network.nodes import Nodes
from spark_producer.network.security_options import security_settings
from spark_producer.security import OidcSettings, SaslSettings, SecuritySettings, Store, TlsSettings

CANARY = "Kanarienvogel77"
FAR = "one.example.org:9093"
PLAIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "u",
    "sasl.password": CANARY,
}
SCRAM = PLAIN | {"sasl.mechanism": "SCRAM-SHA-256"}
TOKENS = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "OAUTHBEARER",
    "oauthTokenProvider": "m:f",
}
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


def config(options: dict[str, str], servers: str = FAR) -> ProducerConfig:
    return producer_config({"bootstrap.servers": servers} | options)


def settings(options: dict[str, str], servers: str = FAR) -> ConnectionSettings:
    return ConnectionSettings.from_config(config(options, servers))


def test_every_setting_of_tls_follows_its_option() -> None:
    found = settings(
        {
            "security.protocol": "SSL",
            "ssl.truststore.location": "t",
            "ssl.truststore.type": "jks",
            "ssl.truststore.password": "tp",
            "ssl.keystore.location": "k",
            "ssl.keystore.type": "pkcs12",
            "ssl.keystore.password": "kp",
            "ssl.key.password": "p",
            "ssl.endpoint.identification.algorithm": "",
            "ssl.enabled.protocols": "TLSv1.2",
            "ssl.cipher.suites": "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
            "secretsAllow": " env:A*, ,file:/m/ ",
        }
    ).security
    assert found == SecuritySettings(
        TlsSettings(
            Store("t", "JKS", Secret("tp")),
            Store("k", "PKCS12", Secret("kp"), key_password=Secret("p")),
            check_name=False,
            protocols=("TLSv1.2",),
            cipher_suites=("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",),
        ),
        allowed_secrets=("env:A*", "file:/m/"),
    )


def test_texts_of_certificates_and_keys() -> None:
    found = settings(
        {
            "security.protocol": "SSL",
            "ssl.ca.pem": "CA",
            "ssl.certificate.pem": "CHAIN",
            "ssl.key.pem": "KEY",
            "enable.ssl.certificate.verification": "false",
        }
    ).security.tls
    assert found == TlsSettings(
        Store(pem="CA"), Store(pem="CHAIN", key_pem=Secret("KEY")), check_name=False, verify=False
    )


@pytest.mark.parametrize("options", [{}, {"ssl.ca.location": "probe"}])
def test_without_a_truststore_the_certificates_of_the_system_count(options: dict[str, str]) -> None:
    assert settings({"security.protocol": "SSL"} | options).security == SecuritySettings(TlsSettings())


def test_every_setting_of_tokens_follows_its_option() -> None:
    found = settings(
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "oauthbearer",
            "sasl.oauthbearer.token.endpoint.url": "https://h/t",
            "sasl.oauthbearer.client.credentials.client.id": "c",
            "sasl.oauthbearer.client.credentials.client.secret": "s",
            "sasl.oauthbearer.scope": "a b",
            "sasl.oauthbearer.header.urlencode": "true",
            "sasl.oauthbearer.extensions": " a = 1 , b=x=y,",
            "https.ca.location": "ca",
            "sasl.login.connect.timeout.ms": "1000",
            "sasl.login.read.timeout.ms": "2000",
            "sasl.login.retry.backoff.ms": "3000",
            "sasl.login.retry.backoff.max.ms": "4000",
            "sasl.login.refresh.window.factor": "0.5",
            "sasl.login.refresh.window.jitter": "0.1",
            "sasl.login.refresh.min.period.seconds": "1",
            "sasl.login.refresh.buffer.seconds": "2",
        }
    ).security.sasl
    oidc = OidcSettings("https://h/t", "c", Secret("s"), "a b", True, Store("ca"), 1.0, 2.0, 3.0, 4.0)
    assert found == SaslSettings(
        "OAUTHBEARER",
        extensions=(("a", "1"), ("b", "x=y")),
        oidc=oidc,
        refresh_window_factor=0.5,
        refresh_window_jitter=0.1,
        refresh_min_period=1.0,
        refresh_buffer=2.0,
    )


def test_the_defaults_of_logins_are_those_of_the_table() -> None:
    found = settings({**TOKENS, "security.protocol": "SASL_SSL"}).security.sasl
    assert found == SaslSettings("OAUTHBEARER", provider="m:f")
    endpoint = {"sasl.oauthbearer.token.endpoint.url": "https://h/", "sasl.oauthbearer.client.id": "c"}
    secret = {"sasl.oauthbearer.client.secret": "s", "oauthTokenProvider": ""}
    found = settings(TOKENS | {"security.protocol": "SASL_SSL"} | endpoint | secret).security.sasl
    assert found == SaslSettings("OAUTHBEARER", oidc=OidcSettings("https://h/", "c", Secret("s")))


def test_a_delegation_token_is_a_login_with_scram() -> None:
    text = (
        'org.apache.kafka.common.security.scram.ScramLoginModule required username="i" password="h" tokenauth="TRUE";'
    )
    found = settings({"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": text})
    assert found.security.sasl == SaslSettings("SCRAM-SHA-512", "i", Secret("h"), token_auth=True)


# --- references -----------------------------------------------------------------------------------------------------


@pytest.mark.covers("SEC41")
def test_references_stay_unresolved_in_options_and_in_quotes() -> None:
    text = f'{MODULE} required username="${{env:U}}" password="${{file:/m/p}}";'
    options = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "ssl.key.password": "${env:K}"}
    found = settings(options | {"sasl.jaas.config": text, "ssl.keystore.location": "k"}).security
    assert found.sasl == SaslSettings("PLAIN", "${env:U}", Secret("${file:/m/p}"))
    assert found.tls is not None
    assert found.tls.identity == Store("k", key_password=Secret("${env:K}"))


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"sasl.username": "u", "sasl.password": "p"}, "kafka.sasl.username and kafka.sasl.password"),
        (
            {"sasl.jaas.config": f'{MODULE} required username="u" password="p";'},
            "username and password in kafka.sasl.jaas.config",
        ),
        (
            {"sasl.username": "u", "sasl.jaas.config": f'{MODULE} required password="p";'},
            "kafka.sasl.username, and password in kafka.sasl.jaas.config",
        ),
        (
            {"sasl.password": "p", "sasl.jaas.config": f'{MODULE} required username="u";'},
            "username in kafka.sasl.jaas.config, and kafka.sasl.password",
        ),
    ],
)
def test_advice_names_the_options_that_the_user_has_set(given: dict[str, str], named: str) -> None:
    found = settings({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"} | given).security.sasl
    assert found is not None
    assert found.given_by == named
    assert found == SaslSettings("PLAIN", "u", Secret("p")), "the same user, however the options say it"


@pytest.mark.covers("SEC41")
def test_a_text_of_jaas_may_be_a_reference_as_a_whole(tmp_path: Path) -> None:
    """As in the secrets that Strimzi makes, whose key `sasl.jaas.config` has the text."""
    path = tmp_path / "sasl.jaas.config"
    path.write_text(f'{MODULE} required username="u" password="{CANARY}";\n', encoding="utf-8")
    options = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f"${{file:{path}}}",
        "secretsAllow": f"file:{tmp_path}/",
    }
    given = config(options)
    assert given.sasl_jaas_config == Secret(f"${{file:{path}}}"), "a configuration travels with the reference"
    assert security_settings(given).sasl == SaslSettings("PLAIN", "u", Secret(CANARY))
    with pytest.raises(ConfigError, match="not allowed here"):
        settings(options | {"secretsAllow": ""})
    path.write_text(f'{MODULE} required username="u" password="${{env:{CANARY}}}";', encoding="utf-8")
    with pytest.raises(ConfigError, match="cannot be resolved in a text that came from a reference itself") as refused:
        settings(options)
    assert CANARY not in str(refused.value)
    path.write_text(f'{MODULE} required username="u";', encoding="utf-8")
    with pytest.raises(ConfigError, match=r"kafka\.sasl\.password is missing"):
        settings(options)


# --- passwords in clear ---------------------------------------------------------------------------------------------


@pytest.mark.covers("SEC11")
@pytest.mark.parametrize(("options", "what"), [(PLAIN, "the password"), (TOKENS, "the token")])
def test_passwords_and_tokens_do_not_leave_the_machine_in_clear(options: dict[str, str], what: str) -> None:
    for servers in (FAR, f"localhost:1,{FAR}"):
        with pytest.raises(ConfigError) as refused:
            settings(options, servers)
        assert str(refused.value) == (
            f"{options['sasl.mechanism']} over SASL_PLAINTEXT would send {what} in clear text to {FAR}. Set "
            "kafka.security.protocol to SASL_SSL, or allowPlaintextCredentials to true"
        )
    assert settings(options, "localhost:1,127.0.0.1:2,[::1]:3").security.protocol == "SASL_PLAINTEXT"
    assert settings(options | {"allowPlaintextCredentials": "true"}).security.protocol == "SASL_PLAINTEXT"
    assert settings(options | {"security.protocol": "SASL_SSL"}).security.protocol == "SASL_SSL"


@pytest.mark.covers("SEC11")
@pytest.mark.parametrize(
    ("options", "only"),
    [
        (PLAIN, True),
        (TOKENS, True),
        (SCRAM, False),
        (PLAIN | {"allowPlaintextCredentials": "true"}, False),
        (PLAIN | {"security.protocol": "SASL_SSL"}, False),
    ],
)
def test_a_broker_that_names_another_machine_as_its_own_gets_no_password(options: dict[str, str], only: bool) -> None:
    found = settings(options, "localhost:1")
    assert found.security.sasl is not None
    assert found.security.sasl.loopback_only is only
    admission = Authenticator(
        found, make_logins(found.security, lambda: None), Nodes(found, Random()), unread_metrics()
    )
    far, near = (NodeConnection(1, host, 9092) for host in ("10.0.0.1", "127.0.0.1"))
    login, allowed = admission.login_for(far), admission.login_for(near)
    assert login is not None
    assert allowed is not None
    assert (login is allowed) is not only
    if only:
        assert (login.mechanism, login.user) == (allowed.mechanism, allowed.user)
        with pytest.raises(
            AuthenticationFailed, match=r"in clear text to 10\.0\.0\.1:9092, an address that the cluster"
        ) as refused:
            login.start()
        assert refused.value.fatal
    admission.close()


@pytest.mark.covers("SEC11")
@pytest.mark.parametrize(
    ("options", "servers", "said"),
    [
        ({}, FAR, None),
        ({"security.protocol": "SSL"}, FAR, None),
        (SCRAM | {"security.protocol": "SASL_SSL"}, FAR, None),
        (SCRAM, "localhost:9092", None),
        (PLAIN, "localhost:9092", None),
        (SCRAM, FAR, f"SCRAM-SHA-256 over SASL_PLAINTEXT to {FAR}: all records, and data from which a weak password"),
        (PLAIN | {"allowPlaintextCredentials": "true"}, FAR, f"PLAIN over SASL_PLAINTEXT to {FAR}: the password and all"),
        (TOKENS | {"allowPlaintextCredentials": "true"}, FAR, "the token and all records can be read on the network path"),
        ({"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": "none"}, FAR, "names are not checked"),
        ({"security.protocol": "SSL", "enable.ssl.certificate.verification": "false"}, FAR, "certificates are not checked"),
    ],
)  # fmt: skip
def test_what_is_weak_is_warned_of_at_each_start(
    options: dict[str, str], servers: str, said: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    found = settings(options, servers)
    with caplog.at_level(logging.WARNING, "pyproducer"):
        Client(found).close()
        Client(found).close()
    reported = [record.getMessage() for record in caplog.records]
    assert len(reported) == (2 if said else 0)
    assert all(said in message for message in reported if said)
    assert CANARY not in caplog.text


# --- secrets --------------------------------------------------------------------------------------------------------


@pytest.mark.covers("SEC42")
def test_settings_and_configurations_show_no_secret_and_have_no_hash() -> None:
    given = config(PLAIN | {"security.protocol": "SASL_SSL"})
    found = ConnectionSettings.from_config(given)
    for shown in (repr(given), str(given), repr(found), str(found), repr(found.security), f"{found.security}"):
        assert CANARY not in shown
    assert repr(found).endswith(", security=SASL_SSL)")
    assert "***" in repr(given)
    for value in (given, found, config({}), settings({})):
        with pytest.raises(TypeError, match="unhashable"):
            hash(value)


@pytest.mark.covers("SEC42")
def test_a_configuration_travels_with_its_secrets_and_compares_by_them() -> None:
    given = config(PLAIN)
    again = pickle.loads(pickle.dumps(given))
    assert again == given
    assert again.sasl_password.reveal() == CANARY
    assert config(PLAIN | {"sasl.password": CANARY + "8"}) != given
    assert settings(PLAIN, "localhost:1") != settings(PLAIN | {"sasl.password": "x"}, "localhost:1")


@pytest.mark.covers("SEC42")
def test_a_secret_may_be_given_as_one_but_not_for_another_option() -> None:
    given = producer_config({"bootstrap.servers": FAR, **SCRAM, "sasl.password": Secret(CANARY)})
    assert given == config(SCRAM)
    with pytest.raises(ConfigError, match=r"kafka\.sasl\.username is not a secret option"):
        producer_config({"bootstrap.servers": FAR, **SCRAM, "sasl.username": Secret("u")})


@pytest.mark.covers("SEC42")
@pytest.mark.parametrize("value", ["text", Secret(" x "), Secret("")])
def test_a_configuration_built_by_hand_has_secrets_in_their_final_form(value: object) -> None:
    with pytest.raises(ConfigError, match="sasl_password is not in its final form: it is ") as refused:
        ProducerConfig(
            bootstrap_servers=FAR,
            security_protocol="SASL_SSL",
            sasl_mechanism="PLAIN",
            sasl_username="u",
            sasl_password=value,  # type: ignore[arg-type]
        )
    assert "text" not in str(refused.value)
