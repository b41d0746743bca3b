"""The rules of logins: the options that each mechanism needs, and the credentials of options and JAAS text together."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from spark_producer.common.secret import Secret
from spark_producer.config import jaas
from spark_producer.config.kerberos_rules import GivenIdentity, check_identity, is_true
from spark_producer.config.references import is_reference
from spark_producer.config.security_table import SecurityOptions, changed_fields, display_name
from spark_producer.config.token_rules import GivenCredentials, token_source
from spark_producer.errors import ConfigError

_PASSWORD_FIELDS = ("sasl_mechanism", "sasl_username", "sasl_password", "sasl_jaas_config")
_NAME_AND_PASSWORD = ("sasl_username", "sasl_password")
_ENDPOINT_FIELDS = (
    "sasl_oauthbearer_method", "sasl_oauthbearer_token_endpoint_url", "sasl_oauthbearer_client_credentials_client_id",
    "sasl_oauthbearer_client_credentials_client_secret", "sasl_oauthbearer_scope", "sasl_oauthbearer_header_urlencode",
    "sasl_oauthbearer_azure_tenant_id", "https_ca_location", "https_ca_pem",
)  # fmt: skip

_KERBEROS = "sasl_kerberos_"
_TICKET_FIELDS = ("sasl_mechanism", "sasl_jaas_config")

_MODULES = {
    "PLAIN": jaas.PLAIN,
    "SCRAM-SHA-256": jaas.SCRAM,
    "SCRAM-SHA-512": jaas.SCRAM,
    "OAUTHBEARER": jaas.OAUTH,
    "AWS_MSK_IAM": jaas.IAM,
    "GSSAPI": jaas.KRB5,
}


@dataclasses.dataclass(frozen=True, slots=True)
class Credentials:
    """The credentials of a login, from options or from the JAAS text. References are not resolved yet.

    Fields whose type is not secret can be references only if they come from JAAS.
    """

    mechanism: str
    """The mechanism as brokers know it: AWS_MSK_IAM is OAUTHBEARER."""
    username: str = ""
    password: Secret | None = None
    token_auth: bool = False
    client_id: str = ""
    client_secret: Secret | None = None
    scope: str = ""
    extensions: tuple[tuple[str, str], ...] = ()
    provider: str = ""
    """The token provider; empty if tokens come from an endpoint or a file."""
    provider_options: tuple[tuple[str, str], ...] = ()
    service: str = ""
    keytab: str = ""
    ticket_cache: str = ""
    """The first part of the brokers' principals, and the keytab or ticket cache, for Kerberos; `username` is the principal."""
    given_by: str = ""
    """The options with name and password, for messages."""


def check_sasl(config: SecurityOptions) -> None:
    """Check the options of logins against each other.

    Raises:
        ConfigError: an option is missing, is not used by the mechanism, or contradicts another.
    """
    mechanism = config.sasl_mechanism
    if not mechanism:
        raise ConfigError(
            f"kafka.security.protocol is {config.security_protocol}, which needs {display_name('sasl_mechanism')}. Java's "
            "default is GSSAPI (Kerberos): set that, or another mechanism"
        )
    for field in changed_fields(config):
        if field.startswith(("sasl_", "https_")) and not _uses(mechanism, field):
            raise ConfigError(f"{display_name(field)} is set, but a login with {mechanism} does not use it. Drop it")
    text = config.sasl_jaas_config
    if text is None or not is_reference(text.reveal()):
        credentials(config, text)


def _uses(mechanism: str, field: str) -> bool:
    if mechanism == "GSSAPI" or field.startswith(_KERBEROS):
        return mechanism == "GSSAPI" and (field in _TICKET_FIELDS or field.startswith(_KERBEROS))
    if mechanism == "OAUTHBEARER":
        return field not in _NAME_AND_PASSWORD
    if mechanism == "AWS_MSK_IAM":
        return field not in _NAME_AND_PASSWORD + _ENDPOINT_FIELDS
    return field in _PASSWORD_FIELDS


def credentials(config: SecurityOptions, text: Secret | None, *, references: bool = True) -> Credentials:
    """Return the credentials of the options and of `text`, the JAAS text.

    `text` is a separate parameter because the option may be a reference: once it is resolved, it has no
    `references`.

    Raises:
        ConfigError: the text cannot be parsed or does not fit the mechanism, an option is missing, or two contradict each other.
    """
    mechanism = config.sasl_mechanism
    jaas_options: Mapping[str, Secret] = {}
    if text is not None:
        entry = jaas.parse_jaas(text, references=references)
        if entry.module != _MODULES[mechanism]:
            raise ConfigError(
                f"{jaas.NAME} has {entry.module}, but {display_name('sasl_mechanism')} is {mechanism}, which needs "
                f"{_MODULES[mechanism]}. Change one of them"
            )
        jaas_options = entry.options
    if mechanism in ("OAUTHBEARER", "AWS_MSK_IAM"):
        return _token_login(config, jaas_options)
    if mechanism == "GSSAPI":
        return _ticket_login(config, jaas_options, with_jaas=text is not None)
    username = _merged(Secret(config.sasl_username), "sasl_username", jaas_options, "username")
    password = _merged(config.sasl_password, "sasl_password", jaas_options, "password")
    for value, field in ((username, "sasl_username"), (password, "sasl_password")):
        if not value:
            raise ConfigError(f"a login with {mechanism} needs kafka.sasl.username and kafka.sasl.password, or both in "
                              f"{jaas.NAME}: {display_name(field)} is missing. Set it")  # fmt: skip
    return Credentials(
        mechanism, username.reveal(), password, token_auth=_token_auth(jaas_options), given_by=_given_by(config)
    )


def _given_by(config: SecurityOptions) -> str:
    """Return the options with name and password, so that advice names the ones that the user has set."""
    if config.sasl_username and config.sasl_password:
        return "kafka.sasl.username and kafka.sasl.password"
    if config.sasl_username:
        return f"kafka.sasl.username, and password in {jaas.NAME}"
    if config.sasl_password:
        return f"username in {jaas.NAME}, and kafka.sasl.password"
    return f"username and password in {jaas.NAME}"


def _token_login(config: SecurityOptions, jaas_options: Mapping[str, Secret]) -> Credentials:
    client_id = _merged(
        Secret(config.sasl_oauthbearer_client_credentials_client_id),
        "sasl_oauthbearer_client_credentials_client_id", jaas_options, "clientId",
    )  # fmt: skip
    client_secret = _merged(
        config.sasl_oauthbearer_client_credentials_client_secret,
        "sasl_oauthbearer_client_credentials_client_secret", jaas_options, "clientSecret",
    )  # fmt: skip
    scope = _merged(Secret(config.sasl_oauthbearer_scope), "sasl_oauthbearer_scope", jaas_options, "scope")
    aws = tuple((key, jaas_options[key].reveal()) for key in jaas.KEYS[jaas.IAM] if key in jaas_options)
    tenant = bool(config.sasl_oauthbearer_azure_tenant_id)
    given = GivenCredentials(bool(client_id), bool(client_secret), bool(scope), bool(aws), tenant)
    return Credentials(
        "OAUTHBEARER",
        client_id=client_id.reveal(),
        client_secret=client_secret or None,
        scope=scope.reveal(),
        extensions=_extensions(config, jaas_options),
        provider=token_source(config, given),
        provider_options=aws,
    )


def _ticket_login(config: SecurityOptions, jaas_options: Mapping[str, Secret], *, with_jaas: bool) -> Credentials:
    def merged(field: str, key: str) -> str:
        return _merged(Secret(getattr(config, field)), field, jaas_options, key).reveal()

    service, principal = (
        merged("sasl_kerberos_service_name", "serviceName"),
        merged("sasl_kerberos_principal", "principal"),
    )
    keytab = merged("sasl_kerberos_keytab", "keyTab")
    ticket_cache = jaas_options.get("ticketCache", Secret("")).reveal()
    use_keytab, use_cache = (is_true(key, jaas_options) for key in ("useKeyTab", "useTicketCache"))
    given = GivenIdentity(principal, keytab, ticket_cache, use_keytab, use_cache, with_jaas, "keyTab" in jaas_options)
    check_identity(service, given)
    return Credentials(
        "GSSAPI", principal, service=service, keytab=keytab, ticket_cache="" if keytab else ticket_cache,
        given_by="the principal",
    )  # fmt: skip


def _merged(value: Secret | None, field: str, jaas_options: Mapping[str, Secret], key: str) -> Secret:
    """Return the value that is set by an option, by its JAAS entry, or by both equally; empty if neither sets it."""
    other = jaas_options.get(key, Secret(""))
    if value and other and value != other:
        raise ConfigError(f"{display_name(field)} and {key} in {jaas.NAME} have different values. Give one of them")
    return value or other


def _token_auth(jaas_options: Mapping[str, Secret]) -> bool:
    text = jaas_options.get("tokenauth", Secret("false")).reveal().lower()
    if text not in ("true", "false"):
        raise ConfigError(f"tokenauth in {jaas.NAME} must be true or false")
    return text == "true"


def _extensions(config: SecurityOptions, jaas_options: Mapping[str, Secret]) -> tuple[tuple[str, str], ...]:
    """Return the extensions of option and JAAS: letters and printable values (Kafka's OAuthBearerClientInitialResponse)."""
    found: dict[str, str] = {}
    name = "kafka.sasl.oauthbearer.extensions"
    for part in config.sasl_oauthbearer_extensions.split(","):
        if not part.strip():
            continue
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not value:
            raise ConfigError(
                f"{name} has no name=value as entry {len(found) + 1}. Give name=value, separated by commas"
            )
        if key in found:
            raise ConfigError(f"{name} has {key!r} twice. Give it once")
        found[key] = value
    for option, secret in jaas_options.items():
        if option.startswith(jaas.EXTENSION):
            key, value = option.removeprefix(jaas.EXTENSION), secret.reveal()
            if found.get(key, value) != value:
                raise ConfigError(
                    f"{name} and {jaas.NAME} have different values of the extension {key!r}. Give one of them"
                )
            found[key] = value
    for key, value in found.items():
        if not (key.isascii() and key.isalpha()) or key == "auth":
            raise ConfigError(f"{name} cannot have the extension {key!r}: a name has only letters, and is not auth")
        if not value or not all("\x20" < character < "\x7f" or character in " \t\r\n" for character in value):
            raise ConfigError(f"{name} has a bad value of the extension {key!r}: it is empty, or not printable ASCII")
    return tuple(found.items())
