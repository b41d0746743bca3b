"""The syntax of references to secrets, `${env:NAME}` and `${file:/path}` or `${file:/path:key}`, and where they may stand.

A reference stays what it is in a configuration: it is resolved where a connection is made (KIP-297 has the form). It may be the
whole value of a secret option, or a whole value in quotes in `sasl.jaas.config`, and nothing else: a text that is partly a
reference would be taken literally, which nobody wants.
"""

from __future__ import annotations

import re

from spark_producer.common.secret import Secret
from spark_producer.errors import ConfigError

JAAS = "sasl.jaas.config"

_WHOLE = re.compile(r"\$\{(?:env:[A-Za-z0-9_]+|file:/[^\x00-\x1f${}]+)\}")
_UNSAID = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_.-]*\}")
"""What a shell or Spring would replace, as in `${KAFKA_PASSWORD}`. It is hardly a password itself."""

_BEGINS = re.compile(r"\$\{[A-Za-z][A-Za-z0-9]*:")
"""How a reference of any config provider of Kafka's begins. `$ConnectionString` is none."""


def is_reference(text: str) -> bool:
    """Whether a text is a whole reference of the kinds that there are."""
    return _WHOLE.fullmatch(text.strip()) is not None


def has_reference(text: str) -> bool:
    """Whether a text has something that looks like a reference of any kind, whole or in part."""
    return "${" in text and _BEGINS.search(text) is not None


def lacks_kind(text: str) -> bool:
    """Whether a text is a whole `${NAME}`, which does not say what kind of thing the name is of."""
    return _UNSAID.fullmatch(text.strip()) is not None


def refuse_references(name: str, value: str | Secret, *, secret_option: bool = False) -> None:
    """Refuse a value with a reference where none can be; `name` is the option.

    Raises:
        ConfigError: the value has one, and is not the whole reference that a secret option may have; or it is `${NAME}`, which
            would be taken for the secret itself.
    """
    hidden = value if isinstance(value, Secret) else Secret(value)
    if secret_option and lacks_kind(hidden.reveal()):
        raise ConfigError(
            f"{name} is ${{…}} without a kind, which nothing would replace: write ${{env:NAME}} for a variable of the "
            "environment, and allow it with secretsAllow=env:NAME (docs/security.md, Secrets); a secret that really has "
            "such a text is given by a reference to it"
        )
    if not has_reference(hidden.reveal()) or (secret_option and is_reference(hidden.reveal())):
        return
    if secret_option:
        raise ConfigError(
            f"{name} has a reference that cannot be resolved: one is ${{env:NAME}}, ${{file:/path}} or ${{file:/path:key}}, "
            "with nothing before or after it; a secret that really has such a text is given by a reference to it"
        )
    raise ConfigError(
        f"{name} has a reference (${{…:…}}), and is no secret: references are the whole value of a secret option, or of a value "
        f"in quotes in kafka.{JAAS}"
    )
