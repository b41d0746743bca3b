"""The rules of logins: what each mechanism needs, and one meaning for what options and the text of JAAS say together."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from spark_producer.common.secret import Secret
from spark_producer.config import jaas
from spark_producer.config.references import is_reference
from spark_producer.config.security_table import SecurityOptions, changed_fields, display_name
from spark_producer.config.token_rules import Client, token_source
from spark_producer.config.unsupported import KERBEROS
from spark_producer.errors import ConfigError

_PASSWORDS = ("sasl_mechanism", "sasl_username", "sasl_password", "sasl_jaas_config")
_NOT_FOR_TOKENS = ("sasl_username", "sasl_password")
_OF_ENDPOINTS = (
    "sasl_oauthbearer_method", "sasl_oauthbearer_token_endpoint_url", "sasl_oauthbearer_client_credentials_client_id",
    "sasl_oauthbearer_client_credentials_client_secret", "sasl_oauthbearer_scope", "sasl_oauthbearer_header_urlencode",
    "https_ca_location", "https_ca_pem",
)  # fmt: skip

_MODULES = {
    "PLAIN": jaas.PLAIN,
    "SCRAM-SHA-256": jaas.SCRAM,
    "SCRAM-SHA-512": jaas.SCRAM,
    "OAUTHBEARER": jaas.OAUTH,
    "AWS_MSK_IAM": jaas.IAM,
}


@dataclasses.dataclass(frozen=True, slots=True)
class Credentials:
    """Who logs in, and how, whether options say it or the text of JAAS. Texts that are references are not resolved yet.

    Only a value of JAAS can be one where the type is no secret: an option that is no secret has none.
    """

    mechanism: str
    """As it goes to the broker: AWS_MSK_IAM is OAUTHBEARER."""
    username: str = ""
    password: Secret | None = None
    token_auth: bool = False
    client_id: str = ""
    client_secret: Secret | None = None
    scope: str = ""
    extensions: tuple[tuple[str, str], ...] = ()
    provider: str = ""
    """What gives tokens, if no endpoint does."""
    provider_options: tuple[tuple[str, str], ...] = ()
    given_by: str = ""
    """The options that hold name and password, for messages."""


def check_sasl(config: SecurityOptions) -> None:
    """Check the options of logins against each other.

    Raises:
        ConfigError: one is missing, is not used by the mechanism, or contradicts another.
    """
    mechanism = config.sasl_mechanism
    if not mechanism:
        raise ConfigError(
            f"kafka.security.protocol is {config.security_protocol}, which needs {display_name('sasl_mechanism')}. Java's "
            f"default is GSSAPI, which is not there: {KERBEROS}"
        )
    for field in changed_fields(config):
        if field.startswith(("sasl_", "https_")) and not _uses(mechanism, field):
            raise ConfigError(f"{display_name(field)} is set, but a login with {mechanism} does not use it: drop it")
    text = config.sasl_jaas_config
    if text is None or not is_reference(text.reveal()):
        credentials(config, text)


def _uses(mechanism: str, field: str) -> bool:
    if mechanism == "OAUTHBEARER":
        return field not in _NOT_FOR_TOKENS
    if mechanism == "AWS_MSK_IAM":
        return field not in _NOT_FOR_TOKENS + _OF_ENDPOINTS
    return field in _PASSWORDS


def credentials(config: SecurityOptions, text: Secret | None, *, references: bool = True) -> Credentials:
    """Return what the options and `text`, that of JAAS, say together.

    `text` is a parameter of its own because the option may be a reference: once it is resolved, it has no
    `references`.

    Raises:
        ConfigError: the text is wrong or does not fit the mechanism; something is missing; or the two contradict each other.
    """
    mechanism = config.sasl_mechanism
    said: Mapping[str, Secret] = {}
    if text is not None:
        entry = jaas.parse_jaas(text, references=references)
        if entry.module != _MODULES[mechanism]:
            raise ConfigError(
                f"{jaas.NAME} has {entry.module}, but {display_name('sasl_mechanism')} is {mechanism}, which goes with "
                f"{_MODULES[mechanism]}"
            )
        said = entry.options
    if mechanism in ("OAUTHBEARER", "AWS_MSK_IAM"):
        return _token_login(config, said)
    username = _agreed(Secret(config.sasl_username), "sasl_username", said, "username")
    password = _agreed(config.sasl_password, "sasl_password", said, "password")
    for value, field in ((username, "sasl_username"), (password, "sasl_password")):
        if not value:
            raise ConfigError(f"a login with {mechanism} needs kafka.sasl.username and kafka.sasl.password, or both in "
                              f"{jaas.NAME}: {display_name(field)} is missing")  # fmt: skip
    return Credentials(mechanism, username.reveal(), password, token_auth=_token_auth(said), given_by=_given_by(config))


def _given_by(config: SecurityOptions) -> str:
    """Return the options that hold name and password, so that advice names what the user has set."""
    if config.sasl_username and config.sasl_password:
        return "kafka.sasl.username and kafka.sasl.password"
    if config.sasl_username:
        return f"kafka.sasl.username, and password in {jaas.NAME}"
    if config.sasl_password:
        return f"username in {jaas.NAME}, and kafka.sasl.password"
    return f"username and password in {jaas.NAME}"


def _token_login(config: SecurityOptions, said: Mapping[str, Secret]) -> Credentials:
    client_id = _agreed(
        Secret(config.sasl_oauthbearer_client_credentials_client_id),
        "sasl_oauthbearer_client_credentials_client_id", said, "clientId",
    )  # fmt: skip
    client_secret = _agreed(
        config.sasl_oauthbearer_client_credentials_client_secret,
        "sasl_oauthbearer_client_credentials_client_secret", said, "clientSecret",
    )  # fmt: skip
    scope = _agreed(Secret(config.sasl_oauthbearer_scope), "sasl_oauthbearer_scope", said, "scope")
    aws = tuple((key, said[key].reveal()) for key in jaas.KEYS[jaas.IAM] if key in said)
    there = Client(bool(client_id), bool(client_secret), bool(scope), bool(aws))
    return Credentials(
        "OAUTHBEARER",
        client_id=client_id.reveal(),
        client_secret=client_secret or None,
        scope=scope.reveal(),
        extensions=_extensions(config, said),
        provider=token_source(config, there),
        provider_options=aws,
    )


def _agreed(value: Secret | None, field: str, said: Mapping[str, Secret], key: str) -> Secret:
    """Return the one value that an option and JAAS give; an empty one if neither does."""
    other = said.get(key, Secret(""))
    if value and other and value != other:
        raise ConfigError(f"{display_name(field)} and {key} in {jaas.NAME} have different values: give one of them")
    return value or other


def _token_auth(said: Mapping[str, Secret]) -> bool:
    text = said.get("tokenauth", Secret("false")).reveal().lower()
    if text not in ("true", "false"):
        raise ConfigError(f"{jaas.NAME}: tokenauth is true or false")
    return text == "true"


def _extensions(config: SecurityOptions, said: Mapping[str, Secret]) -> tuple[tuple[str, str], ...]:
    """Return the extensions of both. Keys are letters and values are printable (Kafka's OAuthBearerClientInitialResponse)."""
    found: dict[str, str] = {}
    name = "kafka.sasl.oauthbearer.extensions"
    for part in config.sasl_oauthbearer_extensions.split(","):
        if not part.strip():
            continue
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not value:
            raise ConfigError(
                f"{name} is a list of name=value, separated by commas: its entry {len(found) + 1} is none"
            )
        if key in found:
            raise ConfigError(f"{name} has {key!r} twice")
        found[key] = value
    for option, secret in said.items():
        if option.startswith(jaas.EXTENSION):
            key, value = option.removeprefix(jaas.EXTENSION), secret.reveal()
            if found.get(key, value) != value:
                raise ConfigError(
                    f"{name} and {jaas.NAME} have different values of the extension {key!r}: give one of them"
                )
            found[key] = value
    for key, value in found.items():
        if not (key.isascii() and key.isalpha()) or key == "auth":
            raise ConfigError(f"the name of an extension in {name} has only letters, and is not auth: {key!r}")
        if not value or not all("\x20" < character < "\x7f" or character in " \t\r\n" for character in value):
            raise ConfigError(f"the extension {key!r} in {name} has a value that is empty, or not plain ASCII")
    return tuple(found.items())
