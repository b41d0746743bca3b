"""The syntax of references to secrets, `${env:NAME}` and `${file:/path}` or `${file:/path:key}`, and the values that may be one.

A configuration keeps references as they are; they are resolved where a connection is made (the form is that of KIP-297). A
reference is the whole value of a secret option, or a whole quoted value in `sasl.jaas.config`. Elsewhere it is
refused, since it would be taken literally.
"""

from __future__ import annotations

import re

from spark_producer.common.secret import Secret
from spark_producer.errors import ConfigError

JAAS = "sasl.jaas.config"

_WHOLE = re.compile(r"\$\{(?:env:[A-Za-z0-9_]+|file:/[^\x00-\x1f${}]+)\}")
_WITHOUT_KIND = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_.-]*\}")
"""A placeholder of shells or Spring, such as `${KAFKA_PASSWORD}`, which is hardly a password itself."""

_BEGINNING = re.compile(r"\$\{[A-Za-z][A-Za-z0-9]*:")
"""The beginning of a reference to any of Kafka's config providers, which `$ConnectionString` is not."""


def is_reference(text: str) -> bool:
    """Return whether a whole text is a reference of a supported kind."""
    return _WHOLE.fullmatch(text.strip()) is not None


def has_reference(text: str) -> bool:
    """Return whether a text contains the beginning of a reference of any kind."""
    return "${" in text and _BEGINNING.search(text) is not None


def has_no_kind(text: str) -> bool:
    """Return whether a whole text is `${NAME}`, which lacks the kind of the reference."""
    return _WITHOUT_KIND.fullmatch(text.strip()) is not None


def refuse_references(name: str, value: str | Secret, *, secret_option: bool = False) -> None:
    """Refuse a value with a reference where it would not be resolved; `name` is the option.

    Raises:
        ConfigError: the value contains a reference, and is not a whole reference in a secret option; or it is `${NAME}`, which
            would be taken for the secret itself.
    """
    hidden = value if isinstance(value, Secret) else Secret(value)
    if secret_option and has_no_kind(hidden.reveal()):
        raise ConfigError(
            f"{name} cannot be resolved: it is ${{…}} without a kind. Write ${{env:NAME}} for an environment variable, and allow "
            "it with secretsAllow=env:NAME (docs/security.md, Secrets). A secret with such a text must be given by a reference"
        )
    if not has_reference(hidden.reveal()) or (secret_option and is_reference(hidden.reveal())):
        return
    if secret_option:
        raise ConfigError(
            f"{name} has a reference that cannot be resolved: it must be ${{env:NAME}}, ${{file:/path}} or ${{file:/path:key}}, "
            "with nothing before or after it. A secret with such a text must be given by a reference"
        )
    raise ConfigError(
        f"{name} has a reference (${{…:…}}), but is not a secret option. Give the value itself; references are for secret "
        f"options and for quoted values in kafka.{JAAS}"
    )
