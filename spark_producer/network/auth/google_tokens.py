"""Tokens of Google Cloud for Managed Service for Apache Kafka, by Google's library google-auth, imported when they are needed."""

from __future__ import annotations

import base64
import json
import os
import warnings
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from spark_producer.config.cloud_identities import GOOGLE_PROVIDER
from spark_producer.errors import AuthenticationFailed
from spark_producer.network.auth.cloud_library import Failure, call_library, import_library, library_token
from spark_producer.security.settings import OidcSettings
from spark_producer.security.token import Token

SCOPE: Final = "https://www.googleapis.com/auth/cloud-platform"
"""The scope of the access token, and the form of the token around it: googleapis/managedkafka, both of its clients."""

_HEADER: Final = {"typ": "JWT", "alg": "GOOG_OAUTH2_TOKEN"}
_ISSUER: Final = "Google"


def google_token(oidc: OidcSettings, now: float) -> Token:
    """Return a token by application default credentials: a service account, that of the machine or the pod, or a federated one.

    `now` is in seconds since 1970. Each call looks for the credentials again, so that a replaced file counts.

    Raises:
        ConfigError: google-auth is not installed (fatal).
        AuthenticationFailed: there are no credentials, or no token. It is fatal if the same request would fail again.
    """
    library = import_library("google.auth", GOOGLE_PROVIDER, "gcp", "google-auth and requests")
    transport = import_library("google.auth.transport.requests", GOOGLE_PROVIDER, "gcp", "google-auth and requests")
    ask = _bounded(transport.Request(), (oidc.connect_timeout, oidc.read_timeout))
    failure, credentials = call_library(lambda: _credentials(library, ask))
    if not failure:
        failure, _ = call_library(lambda: credentials.refresh(ask))  # type: ignore[attr-defined]
    if failure:
        raise AuthenticationFailed(
            f"no token of {GOOGLE_PROVIDER} from Google: {failure.text}", fatal=_is_final(failure)
        )
    token = _kafka_token(credentials, now)
    if isinstance(token, str):
        del credentials  # they may hold a token, which must not show in a traceback
        raise AuthenticationFailed(f"{GOOGLE_PROVIDER} {token}", fatal=True)
    return token


def _credentials(library: Any, ask: Any) -> Any:
    with warnings.catch_warnings():  # of credentials without a project for quotas, which Kafka does not count
        warnings.simplefilter("ignore")
        return library.default(scopes=[SCOPE], request=ask)[0]


def _bounded(request: Any, timeouts: tuple[float, float]) -> Callable[..., Any]:
    """Return `request` with deadlines and without redirects: a secret goes to the endpoint of the credentials alone."""

    def ask(url: str, **more: Any) -> Any:
        return request(url, **(more | {"timeout": timeouts, "allow_redirects": False}))

    return ask


def _is_final(failure: Failure) -> bool:
    """Return whether the same call would fail again. The metadata server of a pod answers only some seconds after its start."""
    if failure.kind == "DefaultCredentialsError":
        return bool(os.environ.get("GOOGLE_APPLICATION_CREDENTIALS"))
    return not failure.may_pass and failure.kind != "TransportError"


def _kafka_token(credentials: Any, now: float) -> Token | str:
    """Return the access token in the form that Google's brokers read, or its problem.

    The form is that of a JWT: header, claims and access token, each in base64url.
    """
    access, expiry = credentials.token, credentials.expiry
    account = getattr(credentials, "service_account_email", None)
    if not isinstance(account, str) or "@" not in account:
        return (
            f"found credentials without a service account ({type(credentials).__name__}), whose address is the user of the "
            "brokers. Give credentials of a service account, or impersonate one"
        )
    until = expiry.replace(tzinfo=UTC).timestamp() if isinstance(expiry, datetime) else None
    found = library_token(access, until)
    if isinstance(found, str) or until is None:
        return str(found)
    claims = {"exp": until, "iat": now, "iss": _ISSUER, "scope": "kafka", "sub": account}
    parts = (json.dumps(_HEADER), json.dumps(claims), access)
    return library_token(
        ".".join(base64.urlsafe_b64encode(part.encode()).decode().rstrip("=") for part in parts), until
    )
