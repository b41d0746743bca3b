"""The rules of tokens: OAUTHBEARER gets them from a token endpoint, a function of the user's or Amazon's signer: from one."""

from __future__ import annotations

from typing import NamedTuple

from spark_producer.config.jaas import original_class_names
from spark_producer.config.security_table import SecurityOptions, display_name
from spark_producer.errors import ConfigError

AWS_PROVIDER = "aws-msk-iam"

_KAFKA_HANDLERS = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler",
    "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler",
)
_AWS_LOGIN_HANDLERS = (
    "software.amazon.msk.auth.iam.IAMOAuthBearerLoginCallbackHandler",
    "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
)
_AWS_CLIENT_HANDLERS = ("software.amazon.msk.auth.iam.IAMClientCallbackHandler",)

_URL, _PROVIDER = "sasl_oauthbearer_token_endpoint_url", "sasl_oauthbearer_token_provider"
_NO_JAVA = "Java classes cannot run here; give `oauthTokenProvider`, a function of Python"


class Client(NamedTuple):
    """What is known of the client that asks for tokens, by options or by JAAS."""

    id: bool
    secret: bool
    scope: bool
    aws: bool
    """Whether JAAS has options of Amazon's."""


def token_source(config: SecurityOptions, client: Client) -> str:
    """Return the provider that gives tokens, or an empty text for the token endpoint.

    Raises:
        ConfigError: nothing gives tokens, or two things do, or something is missing, or set without use.
    """
    provider = _provider(config)
    endpoint = bool(config.sasl_oauthbearer_token_endpoint_url)
    if provider and endpoint:
        raise ConfigError(
            f"{display_name(_URL)} and the token provider {provider!r} are both there: tokens come from one of them"
        )
    if provider:
        _check_provider(config, provider, client)
        return provider
    if not endpoint:
        raise ConfigError(
            f"a login with OAUTHBEARER needs {display_name(_URL)} with a client id and secret, or "
            f"{display_name(_PROVIDER)}; neither is set"
        )
    if not (client.id and client.secret):
        missing = "secret" if client.id else "id"
        raise ConfigError(
            f"{display_name(_URL)} needs {display_name(f'sasl_oauthbearer_client_credentials_client_{missing}')}, which is "
            "missing"
        )
    if client.aws:
        raise ConfigError(
            f"kafka.sasl.jaas.config has options of Amazon's signer, but tokens come from {display_name(_URL)}"
        )
    _check_endpoint(config.sasl_oauthbearer_token_endpoint_url)
    if config.https_ca_location and config.https_ca_pem:
        raise ConfigError("kafka.https.ca.location and kafka.https.ca.pem are both set, and say the same in two ways")
    return ""


def _provider(config: SecurityOptions) -> str:
    """Return the provider that options ask for: by name, by the mechanism, or by the name of Amazon's Java class."""
    provider = config.sasl_oauthbearer_token_provider
    by_class = _by_class(config)
    asked = "kafka.sasl.mechanism" if config.sasl_mechanism == "AWS_MSK_IAM" else by_class
    if asked and provider not in ("", AWS_PROVIDER):
        raise ConfigError(
            f"{display_name(_PROVIDER)} is {provider!r}, but {asked} asks for {AWS_PROVIDER}: drop one of them"
        )
    if config.sasl_mechanism == "AWS_MSK_IAM" and _is_kafkas(config):
        raise ConfigError(
            "kafka.sasl.login.callback.handler.class is that of a token endpoint, which AWS_MSK_IAM has not"
        )
    if provider and _is_kafkas(config):
        raise ConfigError(
            f"kafka.sasl.login.callback.handler.class is that of a token endpoint, but {display_name(_PROVIDER)} is set: drop one"
        )
    return AWS_PROVIDER if asked else provider


def _by_class(config: SecurityOptions) -> str:
    """Return the option that has the name of one of Amazon's classes, if one has."""
    found = ""
    for name, handler, known, others in (
        ("kafka.sasl.login.callback.handler.class", config.sasl_login_callback_handler_class,
         _AWS_LOGIN_HANDLERS, _KAFKA_HANDLERS),
        ("kafka.sasl.client.callback.handler.class", config.sasl_client_callback_handler_class,
         _AWS_CLIENT_HANDLERS, ()),
    ):  # fmt: skip
        if not handler:
            continue
        candidates = set(original_class_names(handler))
        if candidates & set(known):
            found = name
        elif not candidates & set(others):
            raise ConfigError(f"{name} is {handler!r}: {_NO_JAVA}")
    return found


def _is_kafkas(config: SecurityOptions) -> bool:
    return not set(original_class_names(config.sasl_login_callback_handler_class)).isdisjoint(_KAFKA_HANDLERS)


def _check_provider(config: SecurityOptions, provider: str, client: Client) -> None:
    if any(client[:3]) or config.sasl_oauthbearer_method or config.https_ca_location or config.https_ca_pem:
        raise ConfigError(
            f"client id, secret, scope, method and https.ca.* are for {display_name(_URL)}; {provider!r} uses none of them"
        )
    if provider == AWS_PROVIDER:
        return
    if client.aws:
        raise ConfigError(f"kafka.sasl.jaas.config has options of Amazon's signer, but tokens come from {provider!r}")
    module, colon, function = provider.partition(":")
    parts = module.split(".") + function.split(".")
    if not colon or not all(part.isidentifier() for part in parts):
        raise ConfigError(f"{display_name(_PROVIDER)} is {provider!r}: it is module:function, or {AWS_PROVIDER}")


def _check_endpoint(url: str) -> None:
    """Check the address of the endpoint: tokens and secrets go to it, so nothing but TLS will do. It is not shown."""
    from urllib.parse import urlsplit

    name = display_name(_URL)
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        raise ConfigError(f"{name} is no address of the form https://host/path") from None
    if "@" in parts.netloc:
        raise ConfigError(f"{name} has something before an @: id and secret of the client have options of their own")
    if not host or parts.scheme not in ("https", "http") or any(character.isspace() for character in url):
        raise ConfigError(f"{name} is no address of the form https://host/path")
    if parts.scheme == "http" and not is_loopback(host):
        raise ConfigError(f"{name} begins with http: the secret of the client would be sent in clear. It needs https")


def is_loopback(host: str) -> bool:
    """Whether a host, as it is configured, is this machine: `localhost`, or an address of the loopback. No name is looked up."""
    from ipaddress import IPv6Address, ip_address

    bare = host.removeprefix("[").removesuffix("]").rstrip(".").lower()
    if bare == "localhost":
        return True
    try:
        address = ip_address(bare)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback
