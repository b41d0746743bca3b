"""The errors of Kerberos's library in our words, and the host of a broker's principal, without the library."""

from __future__ import annotations

import builtins
import socket
import sys
from typing import Any

import pytest

from spark_producer.errors import ConfigError
from spark_producer.network.auth.kerberos_errors import explained
from spark_producer.network.auth.kerberos_library import MitKerberos, java_host
from spark_producer.security.settings import KerberosSettings

KEYTAB = KerberosSettings("kafka", "app@REALM", "/etc/app.keytab")
CACHE = KerberosSettings("kafka")
BASE = 2**32 - 1765328384


class GSSError(Exception):
    """The library's error."""

    def __init__(self, major: int, minor: int) -> None:
        self.maj_code, self.min_code = major, minor

    def get_all_statuses(self, code: int, is_major: bool) -> list[str]:
        assert (code, is_major) == (self.min_code, False)
        return ["an odd {thing}"]


@pytest.mark.parametrize(
    ("number", "settings", "said", "fatal"),
    [
        (6, KEYTAB, "the KDC does not know app@REALM. Check the principal and its realm", True),
        (7, KEYTAB, "the KDC does not know the broker kafka/host. Set kafka.sasl.kerberos.service.name", True),
        (14, KEYTAB, "no encryption type in common with the keytab /etc/app.keytab. Make the keytab", True),
        (18, KEYTAB, "the KDC has locked app@REALM, or it has expired", True),
        (24, KEYTAB, "the KDC refuses the keytab /etc/app.keytab. Make the keytab again", True),
        (32, CACHE, "the ticket in the ticket cache has expired. Run kinit", True),
        (37, KEYTAB, "the clocks of this machine and of the KDC differ too much. Correct them", True),
        (154, KEYTAB, "krb5.conf names no KDC for the realm of app@REALM. Check /etc/krb5.conf", True),
        (156, KEYTAB, "no KDC answers for the realm of app@REALM. Look whether", False),
        (141, CACHE, "this process has no ticket cache. Run kinit", True),
        (195, CACHE, "this process has no ticket cache. Run kinit", True),
        (195, KEYTAB, "the keytab /etc/app.keytab has no key of app@REALM, or is not a keytab. klist -k", True),
        (39756032 - BASE, CACHE, "the ticket cache is not that of the owner", True),
        (999, KEYTAB, "Kerberos says 'an odd {thing}'. Check", False),
    ],
)
def test_an_error_has_its_cause_and_what_to_do(number: int, settings: KerberosSettings, said: str, fatal: bool) -> None:
    error = explained(GSSError(851968, BASE + number), settings, "host")
    assert said in str(error)
    assert str(error).startswith("no Kerberos ticket: ")
    assert error.fatal is fatal


def test_an_expired_ticket_is_known_by_its_major_code() -> None:
    assert "has expired. Run kinit" in str(explained(GSSError(11 << 16, 100001), CACHE))


@pytest.mark.parametrize(
    ("given", "canonical", "expected"),
    [
        ("Broker", "broker.example.com", "broker.example.com"),
        ("broker.example.com.", "broker.example.com", "broker.example.com"),
        ("alias.example.com", "broker.example.com", "alias.example.com"),
        ("brok", "broker.example.com", "brok"),
        ("10.0.0.1", "10.0.0.1", "10.0.0.1"),
        ("broker", "", "broker"),
    ],
)
def test_the_host_of_a_principal_is_that_of_java(
    given: str, canonical: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `PrincipalName` of the JDK: only a short name is replaced by its long form."""
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, canonical, ("10.0.0.1", 0))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    assert java_host(given) == expected


def test_a_host_that_dns_does_not_know_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> Any:
        raise socket.gaierror("unknown")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    assert java_host("Broker") == "broker"


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    with pytest.raises(ConfigError, match=r"GSSAPI needs gssapi on the driver.*pip install 'pyproducer\[kerberos\]'"):
        MitKerberos(KEYTAB).acquire()


def test_a_keytab_that_cannot_be_read_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", builtins)
    with pytest.raises(ConfigError, match=r"cannot read the keytab /etc/app\.keytab on this machine: No such file"):
        MitKerberos(KEYTAB).acquire()
