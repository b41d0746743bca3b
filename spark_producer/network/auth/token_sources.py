"""The sources of tokens: an endpoint, a file, a function of the user, or a cloud identity. The settings say which one."""

from __future__ import annotations

from collections.abc import Sequence

from spark_producer.config.cloud_identities import AWS_PROVIDER, AZURE_PROVIDERS, GOOGLE_PROVIDER
from spark_producer.errors import ConfigError
from spark_producer.security.settings import SaslSettings
from spark_producer.security.token import Token


def target_of_hosts(sasl: SaslSettings, hosts: Sequence[str]) -> str:
    """Return what the bootstrap servers say of the cluster that a token is for: a region of AWS, or a scope of Event Hubs.

    It is empty if they say nothing, or if the token needs nothing of the kind.
    """
    if sasl.provider == AWS_PROVIDER:
        from spark_producer.network.auth.token_providers import aws_region

        return aws_region(hosts)
    if sasl.provider in AZURE_PROVIDERS:
        from spark_producer.network.auth.azure_tokens import event_hubs_scope

        return event_hubs_scope(hosts)
    return ""


def fetch_from_source(sasl: SaslSettings, allowed: tuple[str, ...], target: str, now: float) -> Token:
    """Fetch a token, on the refresher's thread. `now` is in seconds since 1970.

    Raises:
        ConfigError: the settings name no source, or an option of it is wrong (fatal).
        AuthenticationFailed: the source gave no token.
    """
    if sasl.provider and sasl.oidc is None:
        from spark_producer.network.auth.token_providers import from_aws, from_function

        return (
            from_aws(sasl.provider_options, target) if sasl.provider == AWS_PROVIDER else from_function(sasl.provider)
        )
    if sasl.oidc is None:
        raise ConfigError("no source of tokens for OAUTHBEARER. Set a token endpoint or a token provider", fatal=True)
    if sasl.provider == GOOGLE_PROVIDER:
        from spark_producer.network.auth.google_tokens import google_token

        return google_token(sasl.oidc, now)
    if sasl.provider:
        from spark_producer.network.auth.azure_tokens import azure_token

        return azure_token(sasl.provider, sasl.oidc, allowed, target)
    if sasl.has_token_file:
        from spark_producer.network.auth.token_file import read_token_file

        return read_token_file(sasl.oidc.token_endpoint, allowed, now=now)
    from spark_producer.network.auth.token_endpoint import fetch_token

    return fetch_token(sasl.oidc, allowed, now=now)
