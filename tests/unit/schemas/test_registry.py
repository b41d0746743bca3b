"""The errors when the registry is down, slow, refuses, or answers with garbage. A server of this test plays it."""

from __future__ import annotations

import builtins
import contextlib
import json
from collections.abc import Iterator
from typing import Any

import pytest

from spark_producer.common.secret import Secret
from spark_producer.config import RegistryOptions
from spark_producer.errors import ConfigError, RegistryError, SchemaIncompatible
from spark_producer.schemas.references import SchemaReference
from spark_producer.schemas.registry import AVRO, JSON, MAX_RESPONSE_BYTES, PROTOBUF, Registry
from tests.support.ports import free_ports
from tests.support.secret_codings import CODINGS, USER, shows
from tests.support.secret_codings import PASSWORD as ODD_PASSWORD
from tests.support.waiting import wait_until
from tests.unit.schemas.played_registry import Played

PASSWORD = "k4n4rie"
GRACE = "spark_producer.schemas.registry.GRACE"


@pytest.fixture
def played() -> Iterator[Played]:
    with Played() as server:
        yield server


def registry(url: str, timeout: float = 10.0, kind: str = AVRO, **more: Any) -> Registry:
    options = RegistryOptions(schema_registry_url=url, **more)
    return Registry(options, lambda _, secret: secret.reveal(), timeout, kind)


def failure(made: Registry, kind: type[Exception] = RegistryError) -> str:
    with contextlib.closing(made), pytest.raises(kind) as raised:
        made.register("flights-value", '"string"')
    assert PASSWORD not in str(raised.value)
    return str(raised.value)


@pytest.mark.covers("COM12")
@pytest.mark.parametrize(
    ("status", "code", "text"),
    [
        (401, 40101, "refused it with 401, code 40101: no. The login is wrong or missing"),
        (403, 40301, "The user lacks the permission"),
        (404, 40401, "code 40401: no. Register the schema first, or, for a write, set"),
        (422, 42201, "code 42201: no. The schema is invalid for the registry"),
        (500, 50001, "refused it with 500, code 50001"),
    ],
)
def test_a_refusal_is_reported_with_its_code(played: Played, status: int, code: int, text: str) -> None:
    played.answer = status, json.dumps({"error_code": code, "message": "no."}).encode()
    reported = failure(registry(played.url, basic_auth_user_info=Secret(f"ann:{PASSWORD}")))
    assert text in reported
    assert "register the schema of subject 'flights-value'" in reported
    assert played.url in reported


@pytest.mark.covers("COM12")
def test_an_incompatible_schema_is_an_error_of_its_own(played: Played) -> None:
    played.answer = 409, json.dumps({"error_code": 409, "message": "new at /fields/2\x1b[31m"}).encode()
    reported = failure(registry(played.url), SchemaIncompatible)
    assert "other versions of subject 'flights-value'" in reported
    assert r"new at /fields/2\x1b[31m" in reported


@pytest.mark.covers("COM12")
@pytest.mark.parametrize(
    "body", [b"<html>", b"\xff\xfe", b"[]", b"17", b'{"id": "seven"}', b'{"id": -1}', b'{"id": true}', b"{}", b""]
)
def test_garbage_is_an_error(played: Played, body: bytes) -> None:
    played.answer = 200, body
    assert "sent an invalid response" in failure(registry(played.url))


@pytest.mark.covers("COM12")
@pytest.mark.parametrize("body", [b"<html>nginx</html>", b'{"message": null}', b"{}"])
def test_a_404_of_something_else_asks_for_the_path(played: Played, body: bytes) -> None:
    played.answer = 404, body
    reported = failure(registry(played.url))
    assert "404" in reported
    assert "Check that schema.registry.url is its address, with its path" in reported


@pytest.mark.covers("COM12")
def test_a_registry_that_is_down_or_hangs_is_an_error(played: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GRACE, 20.0)  # so that the client raises its own error first, on a busy machine too
    assert "cannot be reached (ConnectError" in failure(registry(f"http://127.0.0.1:{free_ports(1)[0]}", timeout=1.0))
    played.hangs.set()
    assert "cannot be reached (ReadTimeout" in failure(registry(played.url, timeout=0.4))
    wait_until(lambda: len(played.asked) == 2, "the question has come twice")


@pytest.mark.covers("COM12")
@pytest.mark.parametrize("said", [PASSWORD, f"ann:{PASSWORD}", "Basic YW5uOms0bjRyaWU="])
def test_a_registry_that_sends_the_password_back_shows_none(played: Played, said: str) -> None:
    played.answer = 401, json.dumps({"error_code": said, "message": f"no {said}"}).encode()
    reported = failure(registry(played.url, basic_auth_user_info=Secret(f"ann:{PASSWORD}")))
    assert "YW5uOms0bjRyaWU" not in reported
    assert "no ***" in reported or "no Basic ***" in reported


@pytest.mark.slow
@pytest.mark.parametrize("coding", CODINGS)
def test_a_registry_shows_no_secret_that_it_was_sent(played: Played, coding: str) -> None:
    encoded = CODINGS[coding](ODD_PASSWORD)
    for message in (f"no '{encoded}'", "." * 290 + encoded):
        played.answer = 422, json.dumps({"error_code": 42201, "message": message}).encode()
        basic = registry(played.url, basic_auth_user_info=Secret(f"{USER}:{ODD_PASSWORD}"))
        bearer = registry(played.url, bearer_auth_token=Secret(ODD_PASSWORD))
        assert not any(shows(failure(made), encoded) for made in (basic, bearer))


@pytest.mark.covers("COM12")
def test_an_answer_that_drips_or_never_ends_is_given_up(played: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    played.drips.set()
    with monkeypatch.context() as soon:
        soon.setattr(GRACE, 1.0 - 20.0)  # while no single read of the client's takes too long
        assert "TimeoutError: no complete response within 20 s" in failure(registry(played.url, timeout=20.0))
    played.drips.clear()
    played.answer = 200, b" " * (MAX_RESPONSE_BYTES + 1)
    assert "sent an invalid response" in failure(registry(played.url))
    played.answer = 200, b"[" * 1_000_000
    assert "sent an invalid response" in failure(registry(played.url))


@pytest.mark.covers("COM12")
def test_a_redirect_is_not_followed_with_a_password(played: Played) -> None:
    played.answer = 307, b"{}"
    assert "refused it with 307" in failure(registry(played.url, basic_auth_user_info=Secret(f"ann:{PASSWORD}")))
    assert len(played.asked) == 1


def test_passwords_and_tokens_go_to_the_registry_alone(played: Played) -> None:
    played.answer = 200, b'{"id": 3}'
    made = registry(played.url, bearer_auth_token=Secret("t0ken"))
    assert made.register("s", '"string"').schema_id == 3
    made.close()
    assert played.asked[-1][1] == "Bearer t0ken"
    made = registry(played.url, basic_auth_user_info=Secret("ann:secret"), normalize_schemas=True)
    assert made.register("a b/c", '"string"').schema_id == 3
    made.close()
    assert played.asked[-1] == ("/subjects/a%20b%2Fc/versions?normalize=True", "Basic YW5uOnNlY3JldA==")
    with pytest.raises(ConfigError, match=r"basic\.auth\.user\.info must be user:password"):
        registry(played.url, basic_auth_user_info=Secret(PASSWORD))


@pytest.mark.parametrize("kind", [AVRO, PROTOBUF, JSON])
def test_the_format_and_the_references_of_a_schema_are_sent(played: Played, kind: str) -> None:
    played.answer = 200, b'{"subject": "s", "version": 1, "id": 3, "schema": "x"}'
    made = registry(played.url, kind=kind)
    assert made.register("s", "x", [SchemaReference("a.proto", "a-value", 2)]).schema_id == 3
    assert made.lookup("s", "y").schema_id == 3
    made.close()
    first, second = (json.loads(body) for body in played.bodies)
    assert first == {
        "schema": "x",
        "schemaType": kind,
        "references": [{"name": "a.proto", "subject": "a-value", "version": 2}],
    }
    assert (second["schema"], second["schemaType"], second.get("references") or []) == ("y", kind, [])


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (PROTOBUF, "is Avro, not Protobuf. Set valueFormat or keyFormat to avro$"),
        (JSON, "is Avro, not JSON Schema. Set valueFormat or keyFormat to avro$"),
    ],
)
def test_a_schema_of_another_format_is_refused(played: Played, kind: str, text: str) -> None:
    played.answer = 200, json.dumps({"subject": "s", "version": 1, "id": 7, "schema": '"string"'}).encode()
    with contextlib.closing(registry(played.url, kind=kind)) as made, pytest.raises(RegistryError, match=text):
        made.latest("s")


def test_a_certificate_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigError, match="No such file"):
        registry("https://127.0.0.1:9", schema_registry_ssl_ca_location="/no/such.pem")


def test_only_complete_avro_is_written(played: Played) -> None:
    schema: dict[str, Any] = {"subject": "s", "version": 1, "id": 7, "schema": '"string"'}
    for more, text in (
        ({"schemaType": "PROTOBUF"}, "is Protobuf, not Avro. Set valueFormat or keyFormat to protobuf$"),
        ({"schemaType": "XML"}, "is XML, not Avro$"),
        ({"references": [{"name": "a", "subject": "b", "version": 0}]}, "has a reference without a name"),
    ):
        played.answer = 200, json.dumps(schema | more).encode()
        made = registry(played.url)
        with pytest.raises(RegistryError, match=text):
            made.latest("s")
        made.close()
    played.answer = 200, json.dumps(schema).encode()
    made = registry(played.url)
    assert made.latest("s") == (7, '"string"', None)
    assert made.by_id(7) == '"string"'
    assert made.lookup("s", '"string"').schema_id == 7
    made.close()


def test_without_the_extra_the_command_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *arguments: Any, **named: Any) -> Any:
        if name == "confluent_kafka.schema_registry":
            raise ModuleNotFoundError("No module named 'httpx2'")
        return real(name, *arguments, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(
        ConfigError,
        match=r"No module named 'httpx2'\. Run pip install 'pyproducer\[schemas\]', or .*'confluent-kafka\[schemaregistry\]'",
    ):
        registry("http://127.0.0.1:9")
