"""Tokens of Microsoft Entra for Event Hubs, by Microsoft's library azure-identity, which is imported when they are fetched."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from spark_producer.common.redaction import remember
from spark_producer.common.secret import Secret
from spark_producer.config.cloud_identities import AZURE_CLIENT_SECRET, AZURE_MANAGED_IDENTITY
from spark_producer.errors import AuthenticationFailed, ConfigError
from spark_producer.network.auth.cloud_library import Failure, call_library, import_library, library_token
from spark_producer.network.auth.token_endpoint import FINAL_CODES
from spark_producer.security.references import is_reference, read_secret_file, resolve
from spark_producer.security.settings import OidcSettings
from spark_producer.security.token import Token

_EVENT_HUBS: Final = re.compile(
    r"[a-z0-9-]+\.servicebus\.(?:windows\.net|chinacloudapi\.cn|usgovcloudapi\.net)\.?", re.IGNORECASE
)
_CLIENT: Final = "kafka.sasl.oauthbearer.client.credentials.client"


def event_hubs_scope(hosts: Sequence[str]) -> str:
    """Return the scope of the first host that is a namespace of Event Hubs; empty if none is.

    Kafka clients ask for the resource `https://NAMESPACE.servicebus.windows.net` (Microsoft's page on authenticating an
    application with Event Hubs); the scope of a resource ends with `/.default`.
    """
    for host in hosts:
        if _EVENT_HUBS.fullmatch(host):
            return f"https://{host.rstrip('.').lower()}/.default"
    return ""


def azure_token(provider: str, oidc: OidcSettings, allowed: Sequence[str], scope: str) -> Token:
    """Return a token of an identity of Entra for `scope`, or for that of `oidc`. References in `oidc` are resolved on each call.

    Each call makes a new credential, because the library would return the token of the former call again.

    Raises:
        ConfigError: azure-identity is not installed, or the scope, tenant, client or federated token is missing (fatal).
        AuthenticationFailed: there is no token. It is fatal if the same request would fail again.
    """
    scope = oidc.scope or scope
    if not scope:
        raise ConfigError(
            f"a login with {provider} needs a scope, and no host in bootstrap.servers is a namespace of Event Hubs. Set "
            "kafka.sasl.oauthbearer.scope to https://NAMESPACE.servicebus.windows.net/.default",
            fatal=True,
        )
    library = import_library("azure.identity", provider, "azure", "azure-identity")
    statuses: list[int] = []
    credential = _credential(library, provider, oidc, allowed, statuses)
    failure, returned = call_library(lambda: credential.get_token(scope))
    if failure:
        raise AuthenticationFailed(
            f"no token of {provider} from Entra: {failure.text}", fatal=_is_final(failure, statuses)
        )
    token = library_token(getattr(returned, "token", None), getattr(returned, "expires_on", None))
    if isinstance(token, str):
        del returned, credential  # they may hold a token, which must not show in a traceback
        raise AuthenticationFailed(f"{provider} {token}", fatal=True)
    return token


def _credential(library: Any, provider: str, oidc: OidcSettings, allowed: Sequence[str], statuses: list[int]) -> Any:
    """Return the library's credential, which appends the status of each response to `statuses`: not all of its errors have it.

    The refresher repeats what fails, so that the library need not.
    """
    client = (
        resolve(Secret(oidc.client_id), allowed, name=f"{_CLIENT}.id")
        if is_reference(oidc.client_id)
        else oidc.client_id
    )
    bounds: dict[str, Any] = {
        "connection_timeout": oidc.connect_timeout, "read_timeout": oidc.read_timeout, "retry_total": 0, "retry_status": 0,
        "raw_response_hook": lambda response: statuses.append(response.http_response.status_code),
    }  # fmt: skip
    if provider == AZURE_MANAGED_IDENTITY:
        return library.ManagedIdentityCredential(client_id=client or None, **bounds)
    # The authority is that of the environment or the library's own: asking another host whether it is known adds nothing.
    bounds["disable_instance_discovery"] = True
    tenant = _required("the tenant", oidc.tenant, "azureTenantId", "AZURE_TENANT_ID", provider)
    if provider == AZURE_CLIENT_SECRET:
        secret = Secret(resolve(oidc.client_secret, allowed, name=f"{_CLIENT}.secret"))
        remember(secret)
        return _made(lambda: library.ClientSecretCredential(tenant, client, secret.reveal(), **bounds), provider)
    client = _required("the client id", client, f"{_CLIENT}.id", "AZURE_CLIENT_ID", provider)
    path = _required("the file of the federated token", "", "", "AZURE_FEDERATED_TOKEN_FILE", provider)
    assertion = read_secret_file(path, name="AZURE_FEDERATED_TOKEN_FILE")
    remember(assertion)
    return _made(lambda: library.ClientAssertionCredential(tenant, client, assertion.reveal, **bounds), provider)


def _required(
    what: str, value: str, option: str, variable: str, provider: str, environ: Mapping[str, str] = os.environ
) -> str:
    """Return the value of an option, else that of the variable that AKS and Microsoft's tools set."""
    found = value or environ.get(variable, "")
    if not found:
        ways = f"{option}, or {variable}" if option else variable
        raise ConfigError(
            f"a login with {provider} needs {what}. Set {ways} in the environment of the driver and the executors",
            fatal=True,
        )
    return found


def _made(make: Any, provider: str) -> Any:
    """Return the credential that `make` makes; the library checks the tenant's form."""
    failure, credential = call_library(make)
    if failure:
        raise ConfigError(f"a login with {provider} cannot begin: {failure.text}", fatal=True)
    return credential


def _is_final(failure: Failure, statuses: Sequence[int]) -> bool:
    """Return whether the same request would fail again: Entra refused it. IMDS answers 404, 410 and 429 while it starts."""
    return failure.kind == "ValueError" or (bool(statuses) and statuses[-1] in FINAL_CODES - {404, 410})
