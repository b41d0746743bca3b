"""A Schema Registry with TLS: its certificate, ours, and the error when one of them is not accepted. Id: COM12."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Iterator
from typing import Any

import pytest

from spark_producer.common.secret import Secret
from spark_producer.config import RegistryOptions, parse_sink_options
from spark_producer.errors import ConfigError, RegistryError
from spark_producer.schemas.registry import Registry
from tests.support.certificates import KEY_PASSWORD, Certificates
from tests.unit.schemas.played_registry import Played

PASSWORD = "k4n4rie"


@contextlib.contextmanager
def played(certificates: Certificates, name: str = "registry", *, asks: bool = False) -> Iterator[Played]:
    """A registry with a certificate of the CA, or of another one, which may ask for a certificate of the CA."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.file(f"{name}.pem"))
    if asks:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(certificates.ca)
    with Played(context) as server:
        server.answer = 200, b'{"id": 3}'
        yield server


@pytest.fixture(scope="module", autouse=True)
def issued(certificates: Certificates) -> None:
    certificates.issue("registry")
    certificates.issue("elsewhere", ["registry.example"])
    certificates.issue("strange", trusted=False)
    certificates.issue("job", ["job"])


def register(server: Played, certificates: Certificates, **more: Any) -> int:
    given: dict[str, Any] = {
        "schema_registry_ssl_ca_location": str(certificates.ca),
        "basic_auth_user_info": Secret(f"ann:{PASSWORD}"),
    }
    options = RegistryOptions(schema_registry_url=server.url, **(given | more))
    with contextlib.closing(Registry(options, lambda _, secret: secret.reveal(), 10.0)) as made:
        return made.register("flights-value", '"string"').schema_id


def test_a_registry_whose_certificate_is_of_the_given_ca(certificates: Certificates) -> None:
    with played(certificates) as server:
        assert register(server, certificates) == 3
        assert len(server.asked) == 1


@pytest.mark.covers("COM12")
@pytest.mark.parametrize("case", ["another CA", "another name", "the system's CAs"])
def test_a_certificate_that_is_not_accepted_is_one_error_before_the_password_goes_out(
    certificates: Certificates, case: str
) -> None:
    name = {"another CA": "strange", "another name": "elsewhere"}.get(case, "registry")
    more = {"schema_registry_ssl_ca_location": ""} if case == "the system's CAs" else {}
    with played(certificates, name) as server:
        with pytest.raises(
            RegistryError, match=r"CERTIFICATE_VERIFY_FAILED.*Check schema\.registry\.ssl\.ca\.loc"
        ) as raised:
            register(server, certificates, **more)
        assert server.asked == []
    assert PASSWORD not in str(raised.value)
    assert raised.value.__cause__ is None
    assert server.url in str(raised.value)


@pytest.mark.parametrize("form", ["one file", "two files", "a password"])
def test_a_registry_that_asks_for_a_certificate(certificates: Certificates, form: str) -> None:
    ours = {"schema_registry_ssl_certificate_location": str(certificates.file("job.pem"))}
    if form != "one file":
        key = "job.key" if form == "two files" else "job.locked.key"
        ours = {
            "schema_registry_ssl_certificate_location": str(certificates.file("job.crt")),
            "schema_registry_ssl_key_location": str(certificates.file(key)),
        }
    password = {"schema_registry_ssl_key_password": Secret(KEY_PASSWORD)} if form == "a password" else {}
    with played(certificates, asks=True) as server:
        assert register(server, certificates, **ours, **password) == 3
        with pytest.raises(
            RegistryError, match=r"requires a client certificate, schema\.registry\.ssl\.certificate\.location"
        ):
            register(server, certificates)
        assert len(server.asked) == 1


@pytest.mark.covers("COM12")
@pytest.mark.parametrize("password", [None, Secret("wr0ng-pw")])
def test_a_key_that_cannot_be_opened_does_not_prompt_for_a_password(
    certificates: Certificates, password: Secret | None
) -> None:
    with played(certificates, asks=True) as server, pytest.raises(ConfigError) as raised:
        register(
            server, certificates,
            schema_registry_ssl_certificate_location=str(certificates.file("job.crt")),
            schema_registry_ssl_key_location=str(certificates.file("job.locked.key")),
            schema_registry_ssl_key_password=password,
        )  # fmt: skip
    assert "the password of the key is wrong" in str(raised.value)
    assert "ssl.key.location=" in str(raised.value)
    assert "wr0ng-pw" not in str(raised.value)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"schema.registry.ssl.ca.location": "/ca.pem"}, "has no effect without an address that begins with https"),
        ({"schema.registry.ssl.key.password": PASSWORD}, "has no effect without an address"),
        (
            {"schema.registry.url": "https://r", "schema.registry.ssl.key.location": "/k"},
            "certificate.location, which is not set",
        ),
    ],
)
def test_options_of_tls_that_have_no_effect(given: dict[str, str], text: str) -> None:
    options = {"kafka.bootstrap.servers": "h:1", "topic": "t", "valueFormat": "avro", "schema.registry.url": "http://r"}
    with pytest.raises(ConfigError, match=text) as raised:
        parse_sink_options(options | given)
    assert PASSWORD not in str(raised.value)
