"""Reads the properties of a certificate for messages: subject, issuer, dates and names (RFC 5280). It verifies nothing."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address
from itertools import islice
from typing import Final

from spark_producer.common.escape import for_log
from spark_producer.security.der import SEQUENCE, Element, element

_ATTRIBUTES: Final = {
    bytes.fromhex("550403"): "CN",
    bytes.fromhex("550406"): "C",
    bytes.fromhex("550407"): "L",
    bytes.fromhex("550408"): "ST",
    bytes.fromhex("55040a"): "O",
    bytes.fromhex("55040b"): "OU",
    bytes.fromhex("0992268993f22c640119"): "DC",
    bytes.fromhex("2a864886f70d010901"): "emailAddress",
}
_COMMON_NAME: Final = bytes.fromhex("550403")
_ALTERNATIVE_NAMES: Final = bytes.fromhex("551d11")
_VERSION: Final = 0xA0
_EXTENSIONS: Final = 0xA3
_DNS_NAME: Final = 0x82
_IP_ADDRESS: Final = 0x87
_UTC_TIME: Final = 0x17
_BMP_STRING: Final = 0x1E
_MAX_NAMES: Final = 20
"""Maximum number of alternative names in a message, since a certificate may have thousands."""

_MAX_FIELDS: Final = 20
"""Maximum number of fields, extensions and names that are read; a certificate has ten fields (RFC 5280, 4.1)."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate for messages, with escaped texts and times such as `2026-01-31 23:59:59 UTC`."""

    subject: str
    issuer: str
    not_before: str
    not_after: str
    names: tuple[str, ...]
    """Its DNS names and IP addresses; its common name if it has none (RFC 6125, 6.4.4)."""


def read_certificate(der: bytes) -> Certificate | None:
    """Return the properties of a certificate; None if it cannot be parsed."""
    try:
        return _read(der)
    except ValueError:
        return None


def _read(der: bytes) -> Certificate:
    fields = list(islice(element(der, SEQUENCE).child(0).children(), _MAX_FIELDS))
    if fields and fields[0].tag == _VERSION:
        del fields[0]
    if len(fields) < 6:
        raise ValueError("fields are missing")
    issuer, validity, subject = fields[2:5]
    begin, end = validity.child(0), validity.child(1)
    alternatives = _alternative_names(fields[6:])
    return Certificate(
        subject=_name(subject),
        issuer=_name(issuer),
        not_before=_time(begin),
        not_after=_time(end),
        names=alternatives or _common_names(subject),
    )


def _attributes(name: Element) -> list[tuple[bytes, str]]:
    found = []
    for attribute in islice((each for group in name.children() for each in group.children()), _MAX_FIELDS):
        kind, value = attribute.child(0), attribute.child(1)
        text = bytes(value.content).decode("utf-16-be" if value.tag == _BMP_STRING else "utf-8", "backslashreplace")
        found.append((bytes(kind.content), text))
    return found


def _name(name: Element) -> str:
    return for_log(", ".join(f"{_ATTRIBUTES.get(kind, 'other')}={text}" for kind, text in _attributes(name)))


def _common_names(subject: Element) -> tuple[str, ...]:
    return tuple(for_log(text) for kind, text in _attributes(subject) if kind == _COMMON_NAME)


def _time(time: Element) -> str:
    digits = for_log(bytes(time.content).decode("ascii", "backslashreplace"))
    if time.tag == _UTC_TIME:  # two digits of the year, from 1950 to 2049 (RFC 5280, 4.1.2.5.1)
        digits = ("19" if digits >= "50" else "20") + digits
    year, month, day, hour, minute, second = digits[:4], *(digits[at : at + 2] for at in range(4, 14, 2))
    return f"{year}-{month}-{day} {hour}:{minute}:{second} UTC"


def _alternative_names(fields: list[Element]) -> tuple[str, ...]:
    names: list[str] = []
    extensions = (extension for field in fields if field.tag == _EXTENSIONS for extension in field.child(0).children())
    for extension in extensions:
        parts = list(islice(extension.children(), _MAX_FIELDS))
        if len(parts) < 2 or bytes(parts[0].content) != _ALTERNATIVE_NAMES:
            continue
        for name in islice(element(parts[-1].content, SEQUENCE).children(), _MAX_NAMES):
            if name.tag == _DNS_NAME:
                names.append(for_log(bytes(name.content)))
            elif name.tag == _IP_ADDRESS:
                names.append(str(ip_address(bytes(name.content))))
    return tuple(names[:_MAX_NAMES])
