"""The options of Kerberos logins: their forms, what is missing, and what contradicts."""

from __future__ import annotations

import pytest

from spark_producer.config import producer_config
from spark_producer.errors import ConfigError
from spark_producer.network import ConnectionSettings
from spark_producer.network.settings import principal
from spark_producer.security import KerberosSettings, SaslSettings

GIVEN = {"bootstrap.servers": "broker:9092", "security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"}
SERVICE = {"sasl.kerberos.service.name": "kafka"}
MODULE = "com.sun.security.auth.module.Krb5LoginModule required"


def read(more: dict[str, str]) -> SaslSettings:
    found = ConnectionSettings.from_config(producer_config(GIVEN | more)).security.sasl
    assert found is not None
    return found


def jaas(text: str) -> dict[str, str]:
    return {"sasl.jaas.config": f"{MODULE} {text};"}


BY_KEYTAB = KerberosSettings("kafka", "app@R", "/k")


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (SERVICE, KerberosSettings("kafka")),
        (SERVICE | {"sasl.kerberos.principal": "app@R"}, KerberosSettings("kafka", "app@R")),
        (SERVICE | {"sasl.kerberos.principal": "app@R", "sasl.kerberos.keytab": "/k"}, BY_KEYTAB),
        (SERVICE | jaas('useKeyTab=true storeKey=true doNotPrompt=true keyTab="/k" principal="app@R"'), BY_KEYTAB),
        (
            SERVICE | jaas("useKeyTab=true") | {"sasl.kerberos.principal": "app@R", "sasl.kerberos.keytab": "/k"},
            BY_KEYTAB,
        ),
        (jaas("useTicketCache=true serviceName=kafka renewTGT=true"), KerberosSettings("kafka")),
        (SERVICE | jaas('useTicketCache=TRUE ticketCache="/c"'), KerberosSettings("kafka", ticket_cache="/c")),
        (
            SERVICE | jaas('useTicketCache=true ticketCache="/c" useKeyTab=true keyTab="/k" principal="app@R"'),
            BY_KEYTAB,
        ),
    ],
)
def test_an_identity_has_several_forms(more: dict[str, str], expected: KerberosSettings) -> None:
    assert read(more).kerberos == expected


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({}, "a login with GSSAPI needs kafka.sasl.kerberos.service.name, the first part of the brokers' principals. Set it"),
        (SERVICE | jaas("useKeyTab=true"), "is true, but there is no keytab. Set keyTab"),
        (SERVICE | jaas('keyTab="/k" principal="a"'), "has a keyTab that is not used. Set useKeyTab to true"),
        (SERVICE | jaas('ticketCache="/c"'), "has a ticketCache that is not used. Set useTicketCache to true"),
        (SERVICE | {"sasl.kerberos.keytab": "/k"}, "a keytab needs the principal whose keys it has"),
        (SERVICE | jaas('principal="a"'), "has neither a keytab nor a ticket cache"),
        (SERVICE | jaas("useTicketCache=yes"), "useTicketCache in kafka.sasl.jaas.config is neither true nor false"),
        (SERVICE | jaas("useTicketCache=true serviceName=other"), "have different values. Give one of them"),
        (SERVICE | {"sasl.username": "u"}, "kafka.sasl.username is set, but a login with GSSAPI does not use it"),
        (SERVICE | {"sasl.login.refresh.buffer.seconds": "1"}, "a login with GSSAPI does not use it"),
        (SERVICE | {"sasl.mechanism": "PLAIN"}, "service.name is set, but a login with PLAIN does not use it"),
        (SERVICE | {"sasl.mechanism": "OAUTHBEARER"}, "a login with OAUTHBEARER does not use it"),
    ],
)  # fmt: skip
def test_what_is_missing_or_contradicts_is_one_error(more: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read(more)
    assert said in str(refused.value)


def test_renewal_has_kafkas_names() -> None:
    found = read(
        SERVICE
        | {
            "sasl.kerberos.ticket.renew.window.factor": "0.5",
            "sasl.kerberos.ticket.renew.jitter": "0.1",
            "sasl.kerberos.min.time.before.relogin": "2000",
        }
    )
    assert (found.refresh_window_factor, found.refresh_window_jitter) == (0.5, 0.1)
    assert (found.refresh_min_period, found.refresh_buffer) == (2.0, 0.0)


def test_a_key_is_not_sent_so_plain_connections_are_allowed_and_the_owner_is_named() -> None:
    settings = ConnectionSettings.from_config(
        producer_config(GIVEN | SERVICE | {"security.protocol": "SASL_PLAINTEXT", "sasl.kerberos.principal": "app@R"})
    )
    assert principal(settings.security) == "user 'app@R'"
    cached = ConnectionSettings.from_config(producer_config(GIVEN | SERVICE))
    assert principal(cached.security) == "the owner of the ticket cache"
