"""The rules of OAUTHBEARER tokens: they come from exactly one of a token endpoint, a file, a function and a cloud identity."""

from __future__ import annotations

from typing import NamedTuple

from spark_producer.config.cloud_identities import AWS_PROVIDER, CLOUD_PROVIDERS, GOOGLE_PROVIDER, uses_of
from spark_producer.config.jaas import original_class_names
from spark_producer.config.security_table import SecurityOptions, display_name
from spark_producer.errors import ConfigError

_KAFKA_HANDLERS = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler",
    "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler",
)
_AWS_LOGIN_HANDLERS = (
    "software.amazon.msk.auth.iam.IAMOAuthBearerLoginCallbackHandler",
    "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
)
_AWS_CLIENT_HANDLERS = ("software.amazon.msk.auth.iam.IAMClientCallbackHandler",)
_GOOGLE_LOGIN_HANDLER = "com.google.cloud.hosted.kafka.auth.GcpLoginCallbackHandler"

_URL, _PROVIDER = "sasl_oauthbearer_token_endpoint_url", "sasl_oauthbearer_token_provider"
_FILE = "file:"
_NO_JAVA = "Java classes cannot run here. Give `oauthTokenProvider`, a function of Python"


class GivenCredentials(NamedTuple):
    """The credentials of a token client that options or JAAS set, as a flag for each."""

    id: bool
    secret: bool
    scope: bool
    aws: bool
    """Whether JAAS has options of Amazon's login module."""
    tenant: bool = False
    """Whether there is the tenant of an Azure identity."""


_OPTIONS = {
    "id": "the client id", "secret": "the client secret", "scope": "the scope", "aws": "options of Amazon's login module",
    "tenant": "azureTenantId",
}  # fmt: skip
"""The names of the flags of `GivenCredentials` for messages."""


def token_source(config: SecurityOptions, given: GivenCredentials) -> str:
    """Return the token provider, or an empty text for the token endpoint or file.

    Raises:
        ConfigError: tokens have no source or two, or an option is missing, or set but not used.
    """
    provider = _provider(config)
    url = config.sasl_oauthbearer_token_endpoint_url
    if provider and url:
        raise ConfigError(f"{display_name(_URL)} and the token provider {provider!r} are both set. Drop one of them")
    if provider:
        _check_provider(config, provider, given)
        return provider
    if not url:
        raise ConfigError(
            f"a login with OAUTHBEARER needs {display_name(_URL)} with a client id and secret, or "
            f"{display_name(_PROVIDER)}; neither is set. Set one of them"
        )
    if url.startswith(_FILE):
        _check_file(config, url, given)
        return ""
    if not (given.id and given.secret):
        missing = "secret" if given.id else "id"
        raise ConfigError(
            f"{display_name(_URL)} needs {display_name(f'sasl_oauthbearer_client_credentials_client_{missing}')}, which is "
            "not set. Set it"
        )
    if given.aws:
        raise ConfigError(
            f"kafka.sasl.jaas.config has options of Amazon's signer, but tokens come from {display_name(_URL)}. Drop "
            "one of them"
        )
    if given.tenant:
        raise ConfigError(
            f"azureTenantId is for the Azure identities of {display_name(_PROVIDER)}, but tokens come from {display_name(_URL)}. "
            "Drop one of them"
        )
    _check_endpoint(url)
    if config.https_ca_location and config.https_ca_pem:
        raise ConfigError("kafka.https.ca.location and kafka.https.ca.pem are both set. Drop one of them")
    return ""


def token_file(url: str) -> str:
    """Return the path of a token file, whose URL is `file:///path` as in Kafka; empty for a URL of an endpoint."""
    if not url.startswith(_FILE):
        return ""
    path = url.removeprefix(_FILE)
    return path.removeprefix("//") if path.startswith("///") else path


def _check_file(config: SecurityOptions, url: str, given: GivenCredentials) -> None:
    """Check the URL of a token file: an absolute path in the form of a reference `${file:/path}`, which reads it."""
    path = token_file(url)
    if not path.startswith("/") or path.startswith("//") or any(c in ":{}%" or not c.isprintable() for c in path):
        raise ConfigError(
            f"{display_name(_URL)} of a token file must have the form file:///path, without :, %, {{ and }} in the path"
        )
    if any(given) or config.https_ca_location or config.https_ca_pem:
        raise ConfigError(
            f"one or more of client id, secret, scope, azureTenantId, Amazon's options and https.ca.* are set, but "
            f"{display_name(_URL)} names a token file, which uses none of them. Drop them"
        )


def _provider(config: SecurityOptions) -> str:
    """Return the token provider of the options: the one that is named, or the cloud's if the mechanism or a
    Java class asks for it."""
    provider = config.sasl_oauthbearer_token_provider
    if config.sasl_login_callback_handler_class == _GOOGLE_LOGIN_HANDLER and config.sasl_mechanism == "OAUTHBEARER":
        return _google_provider(config, provider)
    by_class = _aws_class_option(config)
    asked = "kafka.sasl.mechanism" if config.sasl_mechanism == "AWS_MSK_IAM" else by_class
    if asked and provider not in ("", AWS_PROVIDER):
        raise ConfigError(
            f"{display_name(_PROVIDER)} is {provider!r}, but {asked} needs {AWS_PROVIDER}. Drop one of them"
        )
    if config.sasl_mechanism == "AWS_MSK_IAM" and _has_kafka_handler(config):
        raise ConfigError(
            "kafka.sasl.login.callback.handler.class is for token endpoints, which AWS_MSK_IAM does not use. Drop it"
        )
    if provider and _has_kafka_handler(config):
        raise ConfigError(
            f"kafka.sasl.login.callback.handler.class is for token endpoints, but {display_name(_PROVIDER)} is set. Drop one of "
            "them"
        )
    return AWS_PROVIDER if asked else provider


def _google_provider(config: SecurityOptions, provider: str) -> str:
    """Return the provider that Google's Java class asks for."""
    if provider not in ("", GOOGLE_PROVIDER) or config.sasl_client_callback_handler_class:
        raise ConfigError(
            f"kafka.sasl.login.callback.handler.class needs {GOOGLE_PROVIDER}, but {display_name(_PROVIDER)} or "
            "kafka.sasl.client.callback.handler.class asks for another provider. Drop one of them"
        )
    return GOOGLE_PROVIDER


def _aws_class_option(config: SecurityOptions) -> str:
    """Return the option with the name of one of Amazon's classes, or an empty text."""
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


def _has_kafka_handler(config: SecurityOptions) -> bool:
    return not set(original_class_names(config.sasl_login_callback_handler_class)).isdisjoint(_KAFKA_HANDLERS)


def _check_provider(config: SecurityOptions, provider: str, given: GivenCredentials) -> None:
    uses = uses_of(provider)
    if uses is None:
        module, colon, function = provider.partition(":")
        parts = module.split(".") + function.split(".")
        if not colon or not all(part.isidentifier() for part in parts):
            raise ConfigError(
                f"{display_name(_PROVIDER)} is {provider!r}; it must be module:function or one of {', '.join(CLOUD_PROVIDERS)}"
            )
    may, must = uses or (frozenset(), frozenset())
    flags = given._asdict()
    extra = [_OPTIONS[key] for key, is_set in flags.items() if is_set and key not in may]
    if config.sasl_oauthbearer_method:
        extra.append("kafka.sasl.oauthbearer.method")
    if config.https_ca_location or config.https_ca_pem:
        extra.append("kafka.https.ca.*")
    if extra:
        raise ConfigError(f"the token provider {provider!r} does not use {', '.join(extra)}. Drop it")
    missing = [_OPTIONS[key] for key in flags if key in must and not flags[key]]
    if missing:
        raise ConfigError(
            f"the token provider {provider!r} needs {' and '.join(missing)}. Set kafka.sasl.oauthbearer.client.credentials.*"
        )


def _check_endpoint(url: str) -> None:
    """Check the address of the endpoint, which must use TLS, since secrets go to it. Messages do not show it."""
    from urllib.parse import urlsplit

    name = display_name(_URL)
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        raise ConfigError(f"{name} must have the form https://host/path") from None
    if "@" in parts.netloc:
        raise ConfigError(
            f"{name} has a user before an @. Drop it, and set id and secret of the client by their own options"
        )
    if not host or parts.scheme not in ("https", "http") or any(character.isspace() for character in url):
        raise ConfigError(f"{name} must have the form https://host/path")
    if parts.scheme == "http" and not is_loopback(host):
        raise ConfigError(f"{name} begins with http: the client's secret would be sent in clear text. Use https")


def is_loopback(host: str) -> bool:
    """Return whether a configured host is this machine: `localhost` or a loopback address. No name is looked up."""
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
