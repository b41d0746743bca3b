"""The rules of Kerberos logins: the brokers' service name, and a principal with its keytab or a ticket cache."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from spark_producer.common.secret import Secret
from spark_producer.config import jaas
from spark_producer.config.security_table import display_name
from spark_producer.errors import ConfigError

_KEYTAB, _PRINCIPAL = "kafka.sasl.kerberos.keytab", "kafka.sasl.kerberos.principal"


class GivenIdentity(NamedTuple):
    """The identity of a Kerberos login as options and JAAS set it."""

    principal: str
    keytab: str
    ticket_cache: str
    use_keytab: bool
    use_cache: bool
    """`useKeyTab` and `useTicketCache` in JAAS."""
    with_jaas: bool
    """Whether there is a JAAS text."""
    keytab_in_jaas: bool


def check_identity(service: str, given: GivenIdentity) -> None:
    """Check the service name and the identity against each other.

    Raises:
        ConfigError: one is missing, or set but not used.
    """
    if not service:
        raise ConfigError(
            f"a login with GSSAPI needs {display_name('sasl_kerberos_service_name')}, the first part of the brokers' principals. "
            "Set it; it is kafka for kafka/HOST@REALM"
        )
    problem = _problem(given)
    if problem:
        raise ConfigError(problem)


def _problem(given: GivenIdentity) -> str:
    """Return what is wrong with an identity; empty if nothing is."""
    if given.use_keytab and not given.keytab:
        return f"useKeyTab in {jaas.NAME} is true, but there is no keytab. Set keyTab, or {_KEYTAB}"
    if given.keytab_in_jaas and not given.use_keytab:
        return f"{jaas.NAME} has a keyTab that is not used. Set useKeyTab to true, or drop it"
    if given.ticket_cache and not given.use_cache:
        return f"{jaas.NAME} has a ticketCache that is not used. Set useTicketCache to true, or drop it"
    if given.keytab and not given.principal:
        return f"a keytab needs the principal whose keys it has. Set {_PRINCIPAL}, or principal in {jaas.NAME}"
    if given.with_jaas and not (given.keytab or given.use_cache):
        return f"{jaas.NAME} has neither a keytab nor a ticket cache. Set useKeyTab or useTicketCache to true"
    return ""


def is_true(key: str, options: Mapping[str, Secret]) -> bool:
    """Return whether an option of JAAS is true; without it, as in Java, it is not.

    Raises:
        ConfigError: it is neither true nor false.
    """
    text = options.get(key, Secret("false")).reveal().lower()
    if text not in ("true", "false"):
        raise ConfigError(f"{key} in {jaas.NAME} is neither true nor false. Set one of them")
    return text == "true"
