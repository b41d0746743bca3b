"""Logins by cloud identities and token files, the whole way: the embedded broker judges the token that arrives."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
import trustme

from spark_producer import Producer
from spark_producer.broker import LocalBroker
from spark_producer.broker.security import mechanisms
from spark_producer.broker.security.settings import BrokerSecurity
from spark_producer.errors import AuthenticationFailed, PyProducerError
from tests.fakes.cloud_endpoints import ACCOUNT, CLIENT, TENANT, Cloud, json_reply

SECONDS = 60.0
AUDIENCE = "https://demo.servicebus.windows.net"
CANARY = "canary-of-this-test"
AZURE = {
    "azure-managed-identity": {},
    "azure-workload-identity": {"sasl.oauthbearer.client.credentials.client.id": CLIENT, "azureTenantId": TENANT},
    "azure-client-secret": {
        "sasl.oauthbearer.client.credentials.client.id": CLIENT,
        "sasl.oauthbearer.client.credentials.client.secret": CANARY,
        "azureTenantId": TENANT,
    },
}


class Judge:
    """What a broker makes of the tokens that arrive: those of another audience are refused."""

    def __init__(self, audience: str) -> None:
        self.users: list[str] = []
        self._audience = audience

    def __call__(self, token: bytes, now_ms: float) -> mechanisms.Authenticated | None:
        _, claims, last = token.split(b".")
        said = json.loads(base64.urlsafe_b64decode(claims + b"=" * (-len(claims) % 4)))
        if said.get("aud", self._audience) != self._audience or said["exp"] * 1000 <= now_ms:
            return None
        self.users.append(said["sub"] + (f" {base64.urlsafe_b64decode(last + b'==').decode()}" if last else ""))
        return mechanisms.Authenticated(said["sub"], until_ms=said["exp"] * 1000)


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch) -> Judge:
    made = Judge(AUDIENCE)
    monkeypatch.setattr(mechanisms, "_unsigned", made)
    return made


@pytest.fixture
def broker(tmp_path: Path, judge: Judge) -> Iterator[LocalBroker]:
    security = BrokerSecurity("SASL_PLAINTEXT", mechanisms=("OAUTHBEARER",), max_session_ms=1000)
    with LocalBroker(tmp_path / "broker", security=security) as served:
        yield served


@pytest.fixture
def cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cloud]:
    with Cloud(trustme.CA(), tmp_path, monkeypatch) as made:
        made.token_file.write_text("federated.token.x", encoding="utf-8")
        yield made


def token_for(seconds: float, audience: str = AUDIENCE, user: str = "app") -> str:
    """An unsigned token whose life ends that far from now."""
    parts = ({"alg": "none"}, {"sub": user, "aud": audience, "exp": time.time() + seconds})
    return ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts) + "."


def write(broker: LocalBroker, options: dict[str, str], until: Callable[[], bool] = lambda: True) -> None:
    """Write a row at a time, until `until` says that it is enough."""
    secured = {
        "bootstrap.servers": broker.bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
    }
    end = time.monotonic() + SECONDS
    with Producer(secured | options) as producer:
        while True:
            batch = pa.RecordBatch.from_arrays([pa.array([b"row"], pa.binary())], ["value"])
            producer.send_batch(batch, topic="rows")
            producer.flush()
            if until():
                return
            assert time.monotonic() < end


@pytest.mark.covers("SEC18")
@pytest.mark.parametrize("provider", AZURE)
def test_a_token_of_entra_arrives(provider: str, broker: LocalBroker, judge: Judge, cloud: Cloud) -> None:
    token = token_for(3600)
    cloud.serve_tokens(provider, lambda _: json_reply(access_token=token, expires_in=3600, token_type="Bearer"))
    options = {"oauthTokenProvider": provider, "sasl.oauthbearer.scope": f"{AUDIENCE}/.default"}
    write(broker, options | AZURE[provider])
    assert set(judge.users) == {"app"}


@pytest.mark.covers("SEC19")
def test_a_token_for_another_audience_is_refused_in_one_clear_error(broker: LocalBroker, cloud: Cloud) -> None:
    token = token_for(3600, "https://other.servicebus.windows.net")
    cloud.serve_tokens(
        "azure-managed-identity", lambda _: json_reply(access_token=token, expires_in=3600, token_type="Bearer")
    )
    options = {"oauthTokenProvider": "azure-managed-identity", "sasl.oauthbearer.scope": f"{AUDIENCE}/.default"}
    with pytest.raises(AuthenticationFailed, match="invalid_token") as refused:
        write(broker, options)
    assert refused.value.fatal
    assert token not in str(refused.value)


@pytest.mark.covers("SEC18")
def test_a_token_of_google_arrives(broker: LocalBroker, judge: Judge, cloud: Cloud) -> None:
    cloud.serve_tokens(
        "gcp-managed-kafka", lambda _: json_reply(access_token="ya29.abc", expires_in=3600, token_type="Bearer")
    )
    write(broker, {"oauthTokenProvider": "gcp-managed-kafka"})
    assert set(judge.users) == {f"{ACCOUNT} ya29.abc"}


@pytest.mark.covers("SEC18")
def test_a_token_of_a_service_account_is_replaced_while_rows_are_written(
    broker: LocalBroker, judge: Judge, tmp_path: Path
) -> None:
    path = tmp_path / "token"
    replaced = 0

    def replace() -> bool:
        """Do as the kubelet, which writes the next token long before the current one ends."""
        nonlocal replaced
        replaced += 1
        (tmp_path / "next").write_text(token_for(3.0, user=f"pod-{replaced}"), encoding="utf-8")
        (tmp_path / "next").replace(path)
        return len(set(judge.users)) >= 3

    replace()
    write(broker, {"sasl.oauthbearer.token.endpoint.url": path.as_uri(), "secretsAllow": f"file:{tmp_path}/"}, replace)


@pytest.mark.covers("SEC18")
@pytest.mark.parametrize("content", [None, "", "x" * 70_000])
def test_a_file_without_a_token_ends_the_wait(content: str | None, broker: LocalBroker, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "token").write_text(content, encoding="utf-8")
    url = (tmp_path / "token").as_uri()
    with pytest.raises(PyProducerError, match=r"sasl\.oauthbearer\.token\.endpoint\.url"):
        write(broker, {"sasl.oauthbearer.token.endpoint.url": url, "secretsAllow": f"file:{tmp_path}/"})
