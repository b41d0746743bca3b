"""Options in which references to secrets are allowed. Ids (tests/ids.md): SEC."""

from __future__ import annotations

import itertools
import re

import pytest

from spark_producer.common.secret import Secret
from spark_producer.config import ALIASES, KAFKA_FIELDS, data_source_name
from spark_producer.config.option import is_secret
from tests.unit.config.secured import LOGIN, PEM, SSL, TOKENS, config, refusal

SECRETS = [name for name, field in KAFKA_FIELDS.items() if is_secret(field)]
LEGAL = ["${env:A_b1}", "${file:/mnt/x}", "${file:/mnt/x:key}", "${file:/mnt/x y/../z:a.b}", " ${env:A} "]
ILLEGAL = [
    "x${env:A}", "${env:A}x", "${env:A}${env:B}", "${env:A B}", "${env:}", "${env:A:B}", "${file:x}", "${file:}", "${vault:x}",
    "${env:${env:A}}", "${env:A", "a${file:/x", "${secretmanager:p:v}", "${env:A-B}", "${file:/a\nb}",
]  # fmt: skip


def around(name: str) -> dict[str, str]:
    """Options with which a secret option has a use."""
    if name == "sasl.jaas.config":
        return {**LOGIN, "sasl.username": "", "sasl.password": ""}
    if name.startswith("sasl."):
        return LOGIN if name == "sasl.password" else TOKENS
    return SSL | {
        "ssl.truststore.password": {"ssl.truststore.location": "t"},
        "ssl.keystore.key": {"ssl.keystore.certificate.chain": PEM},
    }.get(name, {"ssl.keystore.location": "k"})


def test_there_are_as_many_secrets_as_options_with_such_names() -> None:
    named = [name for name in KAFKA_FIELDS if re.search(r"password|secret$|jaas|keystore\.key", name)]
    assert named == SECRETS


@pytest.mark.covers("SEC41")
@pytest.mark.parametrize(("name", "text"), list(itertools.product(SECRETS, LEGAL)))
def test_a_reference_stays_what_it_is(name: str, text: str) -> None:
    beside = {key: value for key, value in around(name).items() if ALIASES.get(key, key) != name}
    value = getattr(config(beside, {name: text}), name.replace(".", "_"))
    assert value == Secret(text.strip())


@pytest.mark.covers("SEC41")
@pytest.mark.parametrize(("name", "text"), list(itertools.product(SECRETS, ILLEGAL)))
def test_a_reference_that_is_not_all_of_a_secret_is_an_error(name: str, text: str) -> None:
    message = refusal(
        {key: value for key, value in around(name).items() if ALIASES.get(key, key) != name}, {name: text}
    )
    assert message.startswith(
        (f"kafka.{name} has a reference that cannot be resolved: ", f"kafka.{name} cannot be parsed at")
    )


@pytest.mark.covers("SEC41")
@pytest.mark.parametrize(
    "name", [name for name, field in KAFKA_FIELDS.items() if field.type == "str" and name != "acks"]
)
def test_an_option_that_is_no_secret_has_no_references(name: str) -> None:
    assert f"{data_source_name(name)} has a reference (${{…:…}}), but is not a secret option" in refusal(
        LOGIN, {name: "${env:A}"}
    )


@pytest.mark.covers("SEC41")
def test_a_user_name_with_a_dollar_is_no_reference() -> None:
    for name in ("$ConnectionString", "${ConnectionString}", "a$b", "${1:x}"):
        assert config(LOGIN, {"sasl.username": name}).sasl_username == name
    for secret in ("$ConnectionString", "a$b", "${1:x}", "x${A}", "${A}${B}", "${}"):
        assert config(LOGIN, {"sasl.password": secret}).sasl_password == Secret(secret)


@pytest.mark.covers("SEC41")
@pytest.mark.parametrize("text", ["${KAFKA_PASSWORD}", " ${kafka.password} ", "${a-b}"])
def test_a_name_without_a_kind_is_no_secret_and_the_error_says_what_to_write(text: str) -> None:
    for name in SECRETS:
        if name != "sasl.jaas.config":
            message = refusal(around(name) | {name: text})
            assert f"kafka.{name} cannot be resolved: it is ${{…}} without a kind" in message
            assert "${env:NAME}" in message
            assert text.strip() not in message
    plain = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="${{A}}" password="{text}";'
    message = refusal(around("sasl.jaas.config"), {"sasl.jaas.config": plain})
    if text == text.strip():
        assert "is ${…} without a kind. Write ${env:NAME}" in message
