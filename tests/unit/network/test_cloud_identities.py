"""Cloud identities by name: the clouds' own libraries against endpoints that follow the documented wire, on the loopback."""

from __future__ import annotations

import base64
import json
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import trustme

from spark_producer.common.secret import Secret
from spark_producer.errors import AuthenticationFailed, ConfigError, PyProducerError
from spark_producer.network.auth.azure_tokens import azure_token, event_hubs_scope
from spark_producer.network.auth.google_tokens import google_token
from spark_producer.network.auth.token_providers import from_aws
from spark_producer.security.settings import OidcSettings
from spark_producer.security.token import Token
from tests.fakes.cloud_endpoints import ACCOUNT, CLIENT, STS_REPLY, TENANT, Answer, Cloud, json_reply, sts
from tests.fakes.token_endpoint import Reply
from tests.support.ports import free_ports

CANARY = "canary-of-this-test"
SCOPE = "https://demo.servicebus.windows.net/.default"
SECONDS = 20
OIDC = OidcSettings("", CLIENT, Secret(CANARY), tenant=TENANT, connect_timeout=SECONDS, read_timeout=SECONDS)
ENTRA = ["azure-client-secret", "azure-workload-identity"]
AZURE = [*ENTRA, "azure-managed-identity"]


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def cloud(authority: trustme.CA, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cloud]:
    with Cloud(authority, tmp_path, monkeypatch) as made:
        made.token_file.write_text(f"{CANARY}.federated.token\n", encoding="utf-8")
        yield made


def fetch(cloud: Cloud, provider: str, answer: Reply | Answer, **more: object) -> Token:
    """Return the token of an identity whose endpoint answers each request of a token by `answer`, as the refresher gets it."""
    cloud.serve_tokens(provider, (lambda _: answer) if isinstance(answer, Reply) else answer)
    oidc = replace(OIDC, **more)  # type: ignore[arg-type]
    if provider == "gcp-managed-kafka":
        return google_token(oidc, time.time())
    return azure_token(provider, oidc, (), SCOPE)


def refusal(call: Callable[[], object]) -> PyProducerError:
    """The error of a fetch. Neither it nor any frame of ours shows a secret."""
    with pytest.raises(PyProducerError) as refused:
        call()
    frames = [frame for frame, _ in traceback.walk_tb(refused.tb) if "spark_producer" in frame.f_code.co_filename]
    assert frames
    assert CANARY not in repr(refused.value) + "".join(repr(frame.f_locals) for frame in frames)
    assert refused.value.__context__ is None
    assert str(refused.value).isprintable()
    return refused.value


def given() -> Reply:
    return json_reply(access_token="abc.def", expires_in=3600, token_type="Bearer")


@pytest.mark.covers("SEC18")
def test_the_client_secret_of_entra_is_sent_as_its_document_says(cloud: Cloud) -> None:
    forms: list[dict[str, str]] = []
    begun = time.time()
    token = fetch(cloud, "azure-client-secret", lambda form: forms.append(form) or given())  # type: ignore[func-returns-value]
    assert token.text.reveal() == "abc.def"
    assert begun + 3590 < token.expires_at < begun + 3600 + SECONDS
    (form,) = forms
    asked = {name: form[name] for name in ("grant_type", "client_id", "client_secret")}
    assert asked == {"grant_type": "client_credentials", "client_id": CLIENT, "client_secret": CANARY}
    assert SCOPE in form["scope"].split()


@pytest.mark.covers("SEC18")
def test_a_workload_identity_shows_its_federated_token_and_reads_it_each_time(cloud: Cloud) -> None:
    forms: list[dict[str, str]] = []
    for content in ("first.federated.token\n", "second.federated.token"):
        cloud.token_file.write_text(content, encoding="utf-8")
        fetch(cloud, "azure-workload-identity", lambda form: forms.append(form) or given())  # type: ignore[func-returns-value]
    assert [form["client_assertion"] for form in forms] == ["first.federated.token", "second.federated.token"]
    assert {form["client_assertion_type"] for form in forms} == {
        "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
    }
    assert all("client_secret" not in form for form in forms)


@pytest.mark.covers("SEC18")
def test_the_environment_of_a_pod_is_enough_for_a_workload_identity(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_TENANT_ID", TENANT)
    monkeypatch.setenv("AZURE_CLIENT_ID", CLIENT)
    assert fetch(cloud, "azure-workload-identity", given(), tenant="", client_id="").text.reveal() == "abc.def"


@pytest.mark.covers("SEC18")
@pytest.mark.parametrize("client", ["", CLIENT])
def test_a_managed_identity_asks_the_machine_for_the_namespace(client: str, cloud: Cloud) -> None:
    queries: list[dict[str, str]] = []
    fetch(cloud, "azure-managed-identity", lambda query: queries.append(query) or given(), client_id=client)  # type: ignore[func-returns-value]
    (query,) = queries
    assert query == {"resource": SCOPE.removesuffix("/.default")} | ({"client_id": client} if client else {})


@pytest.mark.covers("SEC18")
def test_googles_token_has_the_form_of_its_own_clients(cloud: Cloud) -> None:
    queries: list[dict[str, str]] = []
    begun = time.time()
    token = fetch(cloud, "gcp-managed-kafka", lambda query: queries.append(query) or given())  # type: ignore[func-returns-value]
    header, claims, access = (
        base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)) for part in token.text.reveal().split(".")
    )
    assert json.loads(header) == {"typ": "JWT", "alg": "GOOG_OAUTH2_TOKEN"}
    assert access == b"abc.def"
    said = json.loads(claims)
    assert (said["sub"], said["iss"], said["scope"]) == (ACCOUNT, "Google", "kafka")
    assert begun - 1 < said["iat"] < said["exp"] == token.expires_at < begun + 3600 + SECONDS
    assert queries[0].get("scopes") == "https://www.googleapis.com/auth/cloud-platform"


@pytest.mark.covers("SEC18")
def test_amazons_signer_gets_the_role_of_a_pod_by_its_token(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    forms: list[dict[str, str]] = []
    reply = Reply(200, (STS_REPLY.encode(),), (("Content-Type", "text/xml"), ("Content-Length", str(len(STS_REPLY)))))
    endpoint = cloud.serve(sts(lambda form: forms.append(form) or reply))  # type: ignore[func-returns-value]
    for name, value in {
        "AWS_ROLE_ARN": "arn:aws:iam::123456789012:role/spark",
        "AWS_WEB_IDENTITY_TOKEN_FILE": str(cloud.token_file),
        "AWS_ENDPOINT_URL_STS": f"http://127.0.0.1:{endpoint.port}",
        "AWS_REGION": "eu-west-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }.items():
        monkeypatch.setenv(name, value)
    text = from_aws((), "eu-west-1").text.reveal()
    signed = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()
    assert signed.startswith("https://kafka.eu-west-1.amazonaws.com/?Action=kafka-cluster%3AConnect")
    assert "X-Amz-Credential=ASIAEXAMPLE" in signed
    assert [(form["RoleArn"], form["WebIdentityToken"].strip()) for form in forms] == [
        ("arn:aws:iam::123456789012:role/spark", f"{CANARY}.federated.token")
    ]


@pytest.mark.covers("SEC18")
@pytest.mark.parametrize("provider", ["azure-client-secret", "azure-managed-identity"])
def test_each_fetch_gets_another_token(provider: str, cloud: Cloud) -> None:
    texts = iter(("first", "second"))
    answer = lambda _: json_reply(access_token=next(texts), expires_in=3600, token_type="Bearer")  # noqa: E731
    assert [fetch(cloud, provider, answer).text.reveal() for _ in range(2)] == ["first", "second"]


# What goes wrong


@pytest.mark.covers("SEC17")
@pytest.mark.parametrize("provider", ENTRA)
def test_what_entra_says_of_a_refusal_is_shown_without_the_secret(
    provider: str, cloud: Cloud, caplog: pytest.LogCaptureFixture
) -> None:
    said = f"AADSTS7000215: Invalid client secret provided: {CANARY} {CANARY}.federated.token. Trace ID: 1"
    error = refusal(lambda: fetch(cloud, provider, json_reply(401, error="invalid_client", error_description=said)))
    assert isinstance(error, AuthenticationFailed)
    assert error.fatal
    assert f"no token of {provider} from Entra" in str(error)
    assert "AADSTS7000215" in str(error)
    assert CANARY not in caplog.text


@pytest.mark.covers("SEC17")
def test_a_machine_without_an_identity_says_so(cloud: Cloud) -> None:
    reply = json_reply(400, error="invalid_request", error_description="Identity not found")
    error = refusal(lambda: fetch(cloud, "azure-managed-identity", reply))
    assert isinstance(error, AuthenticationFailed)
    assert "Identity not found" in str(error)


@pytest.mark.covers("SEC17")
@pytest.mark.parametrize("provider", [*AZURE, "gcp-managed-kafka"])
@pytest.mark.parametrize(
    "reply",
    [
        Reply(200, (f'{{"access_token": "{CANARY}", '.encode(),), (("Content-Type", "application/json"),)),
        Reply(200, (f"[{json.dumps(CANARY)}]".encode(),), (("Content-Type", "application/json"),)),
        Reply(200, (f"<html>{CANARY}</html>".encode(),), (("Content-Type", "text/html"),)),
        json_reply(secret=CANARY),
        json_reply(access_token=f"{CANARY} {CANARY}", expires_in=3600, token_type="Bearer"),
        json_reply(access_token=CANARY, expires_in="soon", token_type="Bearer"),
        Reply(500, (CANARY.encode(),)),
    ],
    ids=["cut", "list", "html", "empty", "blank", "expiry", "500"],
)
def test_an_answer_that_cannot_be_used_is_one_error(provider: str, reply: Reply, cloud: Cloud) -> None:
    assert isinstance(refusal(lambda: fetch(cloud, provider, reply)), AuthenticationFailed)


@pytest.mark.covers("SEC17")
@pytest.mark.parametrize("provider", [*AZURE, "gcp-managed-kafka"])
def test_a_redirect_is_not_followed(provider: str, cloud: Cloud) -> None:
    elsewhere = cloud.serve(lambda _: given())
    reply = Reply(307, headers=(("Location", f"http://localhost:{elsewhere.port}/"),))
    assert isinstance(refusal(lambda: fetch(cloud, provider, reply)), AuthenticationFailed)
    assert not elsewhere.asked


@pytest.mark.covers("SEC17")
@pytest.mark.parametrize("provider", [*AZURE, "gcp-managed-kafka"])
def test_an_endpoint_that_hangs_ends_by_the_timeout(provider: str, cloud: Cloud) -> None:
    ended = cloud.serve(lambda _: given())

    def never(_: object) -> Reply:
        ended.closing.wait(SECONDS)
        return given()

    begun = time.monotonic()
    try:
        error = refusal(lambda: fetch(cloud, provider, never, read_timeout=0.2))
    finally:
        ended.closing.set()
    assert isinstance(error, AuthenticationFailed)
    assert not error.fatal
    assert time.monotonic() - begun < SECONDS


@pytest.mark.covers("SEC17")
@pytest.mark.parametrize("provider", AZURE)
def test_a_closed_port_is_no_final_error(provider: str, cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    cloud.serve_tokens(provider, lambda _: given())
    (port,) = free_ports(1)
    monkeypatch.setenv("AZURE_AUTHORITY_HOST", f"https://localhost:{port}")
    monkeypatch.setenv("AZURE_POD_IDENTITY_AUTHORITY_HOST", f"http://localhost:{port}")
    error = refusal(lambda: azure_token(provider, OIDC, (), SCOPE))
    assert isinstance(error, AuthenticationFailed)
    assert not error.fatal


@pytest.mark.covers("SEC18")
@pytest.mark.parametrize("content", [None, b"", b" \n", b"x" * (64 * 1024 + 1), b"\xff\xfe"])
def test_a_federated_token_that_cannot_be_read(content: bytes | None, cloud: Cloud) -> None:
    cloud.token_file.unlink()
    if content is not None:
        cloud.token_file.write_bytes(content)
    error = refusal(lambda: fetch(cloud, "azure-workload-identity", given()))
    assert isinstance(error, ConfigError)
    assert "AZURE_FEDERATED_TOKEN_FILE" in str(error)
    assert cloud.endpoints[-1].asked == []


@pytest.mark.covers("SEC18")
@pytest.mark.parametrize(
    ("more", "missing"),
    [({"tenant": ""}, "azureTenantId, or AZURE_TENANT_ID"), ({"client_id": ""}, "AZURE_CLIENT_ID")],
)
def test_a_workload_identity_without_its_names(more: dict[str, object], missing: str, cloud: Cloud) -> None:
    assert missing in str(refusal(lambda: fetch(cloud, "azure-workload-identity", given(), **more)))


@pytest.mark.covers("SEC18")
def test_a_tenant_that_cannot_be_one_is_said_to_be_wrong(cloud: Cloud) -> None:
    error = refusal(lambda: fetch(cloud, "azure-client-secret", given(), tenant="a/b"))
    assert isinstance(error, ConfigError)
    assert "tenant" in str(error)


@pytest.mark.covers("SEC18")
def test_google_without_any_credentials(cloud: Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    oidc = OidcSettings("", "", Secret(""))
    assert "DefaultCredentialsError" in str(refusal(lambda: google_token(oidc, 0.0)))
    for content in ("{", "[]", json.dumps({"type": "service_account", "private_key": CANARY})):
        (tmp_path / "key.json").write_text(content, encoding="utf-8")
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "key.json"))
        error = refusal(lambda: google_token(oidc, 0.0))
        assert isinstance(error, AuthenticationFailed)
        assert error.fatal
    assert cloud.endpoints == []


# What needs no library


@pytest.mark.covers("SEC18")
@pytest.mark.parametrize(
    ("module", "extra", "call"),
    [
        ("azure.identity", "azure", lambda oidc: azure_token("azure-client-secret", oidc, (), SCOPE)),
        ("google.auth", "gcp", lambda oidc: google_token(oidc, 0.0)),
        ("google.auth.transport.requests", "gcp", lambda oidc: google_token(oidc, 0.0)),
    ],
)
def test_without_the_library_the_error_says_what_to_install(
    module: str, extra: str, call: Callable[[OidcSettings], Token], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    error = refusal(lambda: call(OidcSettings("", CLIENT, Secret(CANARY))))
    assert isinstance(error, ConfigError)
    assert f"pip install 'pyproducer[{extra}]'" in str(error)
    assert error.__dict__ == {"fatal": True}


@pytest.mark.covers("SEC18")
@pytest.mark.parametrize(
    ("hosts", "scope"),
    [
        (["demo.servicebus.windows.net"], SCOPE),
        (["10.0.0.1", "Demo.ServiceBus.windows.net."], SCOPE),
        (["demo.servicebus.chinacloudapi.cn"], "https://demo.servicebus.chinacloudapi.cn/.default"),
        (["demo.servicebus.windows.net.evil.example"], ""),
        (["kafka.example.com"], ""),
        ([], ""),
    ],
)
def test_the_scope_is_the_namespace_among_the_bootstrap_servers(hosts: list[str], scope: str) -> None:
    assert event_hubs_scope(hosts) == scope


@pytest.mark.covers("SEC18")
def test_without_a_scope_the_error_says_what_to_set() -> None:
    error = refusal(lambda: azure_token("azure-managed-identity", OidcSettings("", "", Secret("")), (), ""))
    assert isinstance(error, ConfigError)
    assert "kafka.sasl.oauthbearer.scope" in str(error)
