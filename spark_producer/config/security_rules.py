"""The rules between the options of security: unused, missing and contradicting options are errors.

`tls_rules` has those of TLS, `sasl_rules` those of logins. This module is not imported while all options have their defaults.
"""

from __future__ import annotations

from spark_producer.config.sasl_rules import check_sasl
from spark_producer.config.security_table import SecurityOptions, changed_fields, display_name
from spark_producer.config.tls_rules import check_tls
from spark_producer.errors import ConfigError

_TLS_PREFIXES = ("ssl_", "enable_ssl_")
_LOGIN_PREFIXES = ("sasl_", "https_")


def has_tls(config: SecurityOptions) -> bool:
    """Return whether connections are encrypted."""
    return config.security_protocol in ("SSL", "SASL_SSL")


def has_login(config: SecurityOptions) -> bool:
    """Return whether connections begin with a login."""
    return config.security_protocol in ("SASL_PLAINTEXT", "SASL_SSL")


def check_security(config: SecurityOptions) -> None:
    """Check all rules between the options, without files or connections.

    Raises:
        ConfigError: an option is set but not used, one is missing, or two contradict each other.
    """
    protocol = config.security_protocol
    for field in changed_fields(config):
        if field.startswith(_TLS_PREFIXES) and not has_tls(config):
            wanted = "SASL_SSL" if has_login(config) or any(map(_of_login, changed_fields(config))) else "SSL"
        elif _of_login(field) and not has_login(config):
            wanted = "SASL_SSL"
        else:
            continue
        raise ConfigError(
            f"{display_name(field)} is set, but {protocol} does not use it. Set kafka.security.protocol to {wanted}, or drop it"
        )
    if has_tls(config):
        check_tls(config)
    if has_login(config):
        check_sasl(config)


def _of_login(field: str) -> bool:
    return field.startswith(_LOGIN_PREFIXES)
