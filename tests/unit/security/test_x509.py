"""The summary of certificates for messages; damaged or hostile certificates have none, and raise nothing."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import given
from hypothesis import strategies as st

from spark_producer.security.der import SEQUENCE, element, elements
from spark_producer.security.pem import pem_blocks, pem_text
from spark_producer.security.x509 import read_certificate
from tests.support.certificates import Certificates

KEY = ec.generate_private_key(ec.SECP256R1())
BEGIN = datetime(1999, 2, 3, 4, 5, 6, tzinfo=UTC)


def certificate(name: x509.Name, names: Sequence[x509.GeneralName], end: datetime) -> bytes:
    builder = x509.CertificateBuilder(name, name, KEY.public_key(), 7, BEGIN, end)
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    return builder.sign(KEY, SHA256()).public_bytes(Encoding.DER)


def named(*attributes: tuple[x509.ObjectIdentifier, str]) -> x509.Name:
    return x509.Name([x509.NameAttribute(kind, text) for kind, text in attributes])


@pytest.mark.parametrize(("end", "reported"), [(2049, "2049-12-31 23:59:59 UTC"), (2081, "2081-12-31 23:59:59 UTC")])
def test_both_forms_of_dates_are_shown_alike(end: int, reported: str) -> None:
    """Years from 2050 on have four digits (RFC 5280, 4.1.2.5)."""
    name = named((x509.NameOID.COMMON_NAME, "broker"))
    found = read_certificate(certificate(name, [], datetime(end, 12, 31, 23, 59, 59, tzinfo=UTC)))
    assert found is not None
    assert (found.not_before, found.not_after) == ("1999-02-03 04:05:06 UTC", reported)


def test_names_are_those_that_a_client_looks_at() -> None:
    name = named((x509.NameOID.COUNTRY_NAME, "DE"), (x509.NameOID.COMMON_NAME, "kafka"), (x509.NameOID.TITLE, "x"))
    end = BEGIN + timedelta(days=1)
    alone = read_certificate(certificate(name, [], end))
    assert alone is not None
    assert (alone.subject, alone.issuer, alone.names) == ("C=DE, CN=kafka, other=x",) * 2 + (("kafka",),)
    addresses = [x509.IPAddress(ip_address(text)) for text in ("10.0.0.1", "::1")]
    both = read_certificate(certificate(name, [x509.DNSName("a.example.org"), *addresses, x509.RFC822Name("a@b")], end))
    assert both is not None
    assert both.names == ("a.example.org", "10.0.0.1", "::1")


def test_nothing_of_a_peer_controls_a_terminal_or_fills_a_screen() -> None:
    name = named((x509.NameOID.COMMON_NAME, "\x1b[2J\n"))
    many = [x509.DNSName(f"broker-{number}.example.org") for number in range(1000)]
    found = read_certificate(certificate(name, many, BEGIN + timedelta(days=1)))
    assert found is not None
    assert found.subject == "CN=\\x1b[2J\\n"
    assert len(found.names) == 20


@given(st.binary(max_size=100))
def test_bytes_that_are_no_certificate_are_not_shown(data: bytes) -> None:
    assert read_certificate(data) is None
    assert read_certificate(b"\x30" + bytes((len(data),)) + data) is None


def test_damaged_certificates_raise_nothing(certificates: Certificates) -> None:
    der = ssl.PEM_cert_to_DER_cert(certificates.ca.read_text())
    damaged = (der[:at] + bytes((value,)) + der[at + 1 :] for at in range(len(der)) for value in (0, 0x7F, 0x80, 0xFF))
    found = [read_certificate(one) for one in damaged]
    assert None in found, "damage to the structure is noticed"
    assert all(one.subject.isprintable() for one in found if one is not None)
    assert any(one is not None for one in found), "that of a key or signature is not looked at"


@pytest.mark.parametrize("wrong", ["", "30", "3080", "3005", "308101", "3085000000000000", "1f0100", "300000", "0400"])
def test_der_is_read_strictly(wrong: str) -> None:
    with pytest.raises(ValueError, match=r"element|length"):
        element(bytes.fromhex(wrong), SEQUENCE)


def test_der_gives_elements_one_level_at_a_time() -> None:
    outer = element(bytes.fromhex("30080201053003040161"), SEQUENCE)
    assert [child.tag for child in outer.children()] == [2, 0x30]
    assert bytes(outer.child(1, 0).content) == b"a"
    with pytest.raises(ValueError, match="missing"):
        outer.child(2)
    assert list(elements(b"")) == []


@given(st.binary(max_size=200), st.sampled_from([" ", "\\n", "\r\n", "\n\n"]))
def test_pem_survives_every_layout(der: bytes, end: str) -> None:
    text = pem_text("CERTIFICATE", der)
    assert [block.text for block in pem_blocks("before " + text.replace("\n", end) + " after")] == [text]
    assert repr(pem_blocks(text)) == "[Block('CERTIFICATE')]"


@given(st.text(max_size=200))
def test_text_without_blocks_has_none(text: str) -> None:
    assert pem_blocks(text + "-----BEGIN CERTIFICATE-----" + text) == []
