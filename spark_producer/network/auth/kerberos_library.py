"""Kerberos by the library gssapi over MIT's krb5, which is imported when a login begins."""

from __future__ import annotations

import itertools
import math
import os
import socket
import time
from typing import Any

from spark_producer.common.escape import for_log
from spark_producer.errors import AuthenticationFailed, ConfigError
from spark_producer.network.auth.cloud_library import import_library
from spark_producer.network.auth.kerberos_errors import explained
from spark_producer.network.auth.tickets import Credentials
from spark_producer.security.settings import KerberosSettings

_numbers = itertools.count()


class MitKerberos:
    """The calls of the library for one identity. They block, and run on the thread of `Tickets`."""

    def __init__(self, settings: KerberosSettings) -> None:
        self._settings = settings

    def acquire(self) -> Credentials:
        """Return new credentials: from a KDC by the keytab, or from the ticket cache.

        Tickets of a keytab are in a cache of this process's memory, a new one each time: tickets for brokers, too, are then new.

        Raises:
            ConfigError: gssapi is not installed, or the keytab cannot be read (fatal).
            AuthenticationFailed: there is no ticket. It is fatal if the same request would fail again.
        """
        library, settings = _library(), self._settings
        store: dict[str, str] = {}
        if settings.keytab:
            _check_keytab(settings.keytab)
            store["client_keytab"] = f"FILE:{settings.keytab}"
            store["ccache"] = f"MEMORY:pyproducer-{os.getpid()}-{next(_numbers)}"
        elif settings.ticket_cache:
            store["ccache"] = settings.ticket_cache
        try:
            name = _name(library, settings.principal) if settings.principal else None
            handle = library.Credentials(name=name, usage="initiate", store=store or None)
            lifetime = handle.lifetime  # a keytab's ticket is asked for now
        except library.exceptions.GSSError as error:
            failure = explained(error, settings)
        else:
            return Credentials(handle, math.inf if lifetime is None else time.time() + lifetime)
        raise failure

    def begin(self, credentials: Credentials, host: str) -> GssContext:
        """Return a security context with the broker on `host`, with its first message. The name of the host is that of Java.

        Raises:
            AuthenticationFailed: there is no ticket for the broker. It is fatal if the same request would fail again.
        """
        library, service = _library(), self._settings.service
        host = java_host(host)
        flags = library.RequirementFlag.mutual_authentication | library.RequirementFlag.integrity
        try:
            realm = _realm(library, service, host)
            context = library.SecurityContext(
                name=_name(library, f"{service}/{host}@{realm}"),
                creds=credentials.handle,
                mech=library.MechType.kerberos,
                usage="initiate",
                flags=flags,
            )
            return GssContext(library, context, context.step())
        except library.exceptions.GSSError as error:
            failure = explained(error, self._settings, host)
        raise failure


class GssContext:
    """A security context of the library whose first message is made. No method asks a KDC."""

    def __init__(self, library: Any, context: Any, first_message: bytes) -> None:
        self._library = library
        self._context = context
        self.first_message = first_message

    @property
    def complete(self) -> bool:
        """Whether both sides are authenticated."""
        return bool(self._context.complete)

    def step(self, challenge: bytes) -> bytes:
        """Return the next message, which may be empty."""
        return self._call(lambda: self._context.step(challenge) or b"")

    def unwrap(self, message: bytes) -> bytes:
        """Return the content of a protected message."""
        return self._call(lambda: self._context.unwrap(message).message)

    def wrap(self, content: bytes) -> bytes:
        """Return a protected message, signed and not encrypted."""
        return self._call(lambda: self._context.wrap(content, False).message)

    def _call(self, act: Any) -> bytes:
        try:
            return bytes(act())
        except self._library.exceptions.GSSError as error:
            reason = for_log(str(error))
        raise AuthenticationFailed(
            f"the broker has not proved that it has the key of its principal: {reason}. Check the clocks of both, and "
            "that this is a Kafka broker",
            fatal=True,
        )


def java_host(host: str) -> str:
    """Return the host of a broker's principal as Java finds it: in lower case, and a short name in full.

    Java asks DNS, and takes the canonical name only if it is the given one with a domain (PrincipalName in the JDK). So neither
    an alias nor an address is replaced, whatever `rdns` and `dns_canonicalize_hostname` of krb5.conf say.
    """
    given = host.lower().rstrip(".")
    try:
        found = socket.getaddrinfo(given, None, type=socket.SOCK_STREAM, flags=socket.AI_CANONNAME)
    except (OSError, UnicodeError):
        return given
    canonical = next((name.lower().rstrip(".") for _, _, _, name, _ in found if name), "")
    return canonical if canonical.startswith(f"{given}.") else given


def _realm(library: Any, service: str, host: str) -> str:
    """Return the realm of a host by `domain_realm` of krb5.conf; empty if that says nothing, so that the KDC refers to it."""
    name = library.Name(f"{service}@{host}", library.NameType.hostbased_service)
    return str(name.canonicalize(library.MechType.kerberos)).rpartition("@")[2]


def _name(library: Any, principal: str) -> Any:
    return library.Name(principal, library.NameType.kerberos_principal)


def _library() -> Any:
    return import_library("gssapi", "GSSAPI", "kerberos", "gssapi")


def _check_keytab(path: str) -> None:
    try:
        with open(path, "rb"):  # noqa: PTH123
            return
    except OSError as error:
        reason = error.strerror or type(error).__name__
    raise ConfigError(
        f"cannot read the keytab {path} on this machine: {reason}. Driver and executors need it under the same path, readable",
        fatal=True,
    )
