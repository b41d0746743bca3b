"""The wire of the clouds' identity services, as their documents have it: what a correct request gets."""

from __future__ import annotations

import importlib
import json
import ssl
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace, TracebackType
from typing import TypeAlias
from urllib.parse import parse_qs, urlsplit

import pytest
import trustme

from tests.fakes.token_endpoint import Asked, Reply, TokenEndpoint

TENANT = "72f988bf-86f1-41af-91ab-2d7cd011db47"
CLIENT = "5e3ce6c0-2b1f-4285-8d4b-75ee78787346"
ACCOUNT = "spark@project.iam.gserviceaccount.com"
VARIABLES = (
    "AZURE_AUTHORITY_HOST", "AZURE_TENANT_ID", "AZURE_CLIENT_ID", "AZURE_FEDERATED_TOKEN_FILE",
    "AZURE_POD_IDENTITY_AUTHORITY_HOST", "IDENTITY_ENDPOINT", "IDENTITY_HEADER", "MSI_ENDPOINT", "MSI_SECRET", "IMDS_ENDPOINT",
    "GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_PROJECT", "CLOUDSDK_CONFIG", "HTTPS_PROXY", "HTTP_PROXY", "https_proxy",
    "http_proxy",
)  # fmt: skip
"""What the libraries look at in the environment."""

Answer: TypeAlias = Callable[[dict[str, str]], Reply]
"""The reply to the parameters of a request of a token."""


def json_reply(code: int = 200, **body: object) -> Reply:
    return Reply(code, (json.dumps(body).encode(),), (("Content-Type", "application/json"),))


def entra(port: Callable[[], int], answer: Answer) -> Callable[[Asked], Reply]:
    """Return the authority of a tenant: its OpenID configuration and its token endpoint of version 2 (client credentials)."""

    def serve(asked: Asked) -> Reply:
        base = f"https://localhost:{port()}/{TENANT}"
        if asked.path == f"/{TENANT}/v2.0/.well-known/openid-configuration":
            return json_reply(
                token_endpoint=f"{base}/oauth2/v2.0/token",
                authorization_endpoint=f"{base}/oauth2/v2.0/authorize",
                issuer=f"{base}/v2.0",
            )
        if (asked.method, asked.path) != ("POST", f"/{TENANT}/oauth2/v2.0/token"):
            return Reply(404)
        return answer({name: value for name, (value,) in parse_qs(asked.body).items()})

    return serve


def imds(answer: Answer) -> Callable[[Asked], Reply]:
    """Return Azure's Instance Metadata Service, which wants the header `Metadata: true` and a version of its interface."""

    def serve(asked: Asked) -> Reply:
        parts = urlsplit(asked.path)
        query = {name: value for name, (value,) in parse_qs(parts.query).items()}
        if asked.headers.get("Metadata") != "true" or query.pop("api-version", "") < "2018-02-01":
            return json_reply(400, error="invalid_request", error_description="Required metadata header not specified")
        if (asked.method, parts.path) != ("GET", "/metadata/identity/oauth2/token"):
            return Reply(404)
        return answer(query)

    return serve


def metadata_server(answer: Answer) -> Callable[[Asked], Reply]:
    """Return the metadata server of a Google machine or pod: `answer` gets the query of a request of a token."""
    base = "/computeMetadata/v1/"
    header = (("Metadata-Flavor", "Google"),)
    plain = (("Content-Type", "application/text"), *header)

    def serve(asked: Asked) -> Reply:
        parts = urlsplit(asked.path)
        if asked.headers.get("Metadata-Flavor", asked.headers.get("metadata-flavor")) != "Google":
            return Reply(403, headers=header)
        if parts.path in ("/", base):
            return Reply(200, (b"computeMetadata/",), plain)
        if parts.path == f"{base}project/project-id":
            return Reply(200, (b"project",), plain)
        if parts.path == f"{base}universe/universe-domain":
            return Reply(404, headers=header)
        if parts.path == f"{base}instance/service-accounts/default/":
            reply = json_reply(
                aliases=["default"], email=ACCOUNT, scopes=["https://www.googleapis.com/auth/cloud-platform"]
            )
        elif parts.path.removeprefix(f"{base}instance/service-accounts/") in ("default/token", f"{ACCOUNT}/token"):
            reply = answer({name: value for name, (value,) in parse_qs(parts.query).items()})
        else:
            return Reply(404, headers=header)
        return reply._replace(headers=reply.headers + header)

    return serve


def sts(answer: Answer) -> Callable[[Asked], Reply]:
    """Return AWS's STS as far as AssumeRoleWithWebIdentity (its API reference): `answer` gets the parameters."""

    def serve(asked: Asked) -> Reply:
        form = {name: value for name, (value,) in parse_qs(asked.body).items()}
        if (form.pop("Action", ""), form.pop("Version", "")) != ("AssumeRoleWithWebIdentity", "2011-06-15"):
            return Reply(400)
        return answer(form)

    return serve


STS_REPLY = """<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">
<AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>ASIAEXAMPLE</AccessKeyId><SecretAccessKey>secret</SecretAccessKey>
<SessionToken>session</SessionToken><Expiration>2099-01-01T00:00:00Z</Expiration></Credentials></AssumeRoleWithWebIdentityResult>
</AssumeRoleWithWebIdentityResponse>"""


class Cloud:
    """The endpoints of identities, and an environment that knows no others."""

    def __init__(self, authority: trustme.CA, folder: Path, environment: pytest.MonkeyPatch) -> None:
        self.endpoints: list[TokenEndpoint] = []
        self.token_file = folder / "token"
        self._authority = authority
        self._environment = environment
        for name in VARIABLES:
            environment.delenv(name, raising=False)
        authority.cert_pem.write_to_path(str(folder / "ca.pem"))
        environment.setenv("REQUESTS_CA_BUNDLE", str(folder / "ca.pem"))
        environment.setenv("NO_PROXY", "localhost,127.0.0.1")
        environment.setenv("HOME", str(folder))

    def serve(self, answer: Callable[[Asked], Reply], *, tls: bool = False) -> TokenEndpoint:
        """Start an endpoint."""
        context = None
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._authority.issue_cert("localhost").configure_cert(context)
        self.endpoints.append(TokenEndpoint(answer, context))
        return self.endpoints[-1]

    def serve_tokens(self, provider: str, answer: Answer) -> None:
        """Start the endpoint of an identity, and name it in the environment as its cloud does."""
        if provider == "gcp-managed-kafka":
            self._serve_google(answer)
        elif provider == "azure-managed-identity":
            port = self.serve(imds(answer)).port
            self._environment.setenv("AZURE_POD_IDENTITY_AUTHORITY_HOST", f"http://localhost:{port}")
        else:
            port = self.serve(entra(lambda: self.endpoints[-1].port, answer), tls=True).port
            self._environment.setenv("AZURE_AUTHORITY_HOST", f"https://localhost:{port}")
            self._environment.setenv("AZURE_FEDERATED_TOKEN_FILE", str(self.token_file))

    def _serve_google(self, answer: Answer) -> None:
        """Start a metadata server; its name is read once at the import. Pauses between attempts are left out."""
        metadata = importlib.import_module("google.auth.compute_engine._metadata")
        host = f"localhost:{self.serve(metadata_server(answer)).port}"
        self._environment.setattr(metadata, "_GCE_METADATA_HOST", host)
        self._environment.setenv("GCE_METADATA_IP", host)
        no_pause = SimpleNamespace(sleep=lambda _: None)
        self._environment.setattr("google.auth._exponential_backoff.time", no_pause)

    def __enter__(self) -> Cloud:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for endpoint in self.endpoints:
            endpoint.close()
