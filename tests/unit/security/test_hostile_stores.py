"""Files of certificates and keys that strangers made: they are read in linear time and little memory, or refused."""

from __future__ import annotations

import base64
import re
import struct
import tracemalloc
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import PrivateFormat, load_pem_private_key
from cryptography.hazmat.primitives.serialization.pkcs12 import PBES, serialize_key_and_certificates
from hypothesis import given
from hypothesis import strategies as st

from spark_producer.common.secret import Secret
from spark_producer.errors import TlsFailed
from spark_producer.security import Store
from spark_producer.security import stores as module
from spark_producer.security.der import SEQUENCE, element
from spark_producer.security.iterations import MAX_ITERATIONS, iterations_problem
from spark_producer.security.jks import MAGIC
from spark_producer.security.pem import pem_blocks
from spark_producer.security.pkcs12 import read_pkcs12
from spark_producer.security.stores import load_identity, load_trust
from spark_producer.security.x509 import read_certificate
from tests.support.certificates import KEY_PASSWORD, Certificates
from tests.unit.security.test_jks import tlv

MANY = 200_000
MEBIBYTE = 1024 * 1024


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("-----BEGIN CERTIFICATE-----\n" * MANY, 0),
        ("".join(f"-----BEGIN A{number}-----\n" for number in range(MANY)), 0),
        ("-----END CERTIFICATE-----\n" * MANY, 0),
        ("-----BEGIN A-----\n" * MANY + "-----END A-----", 1),
        ("-----BEGIN A-----\n" * MANY + "-----END B-----\n" * MANY, 0),
        ("-----BEGIN " * MANY, 0),
        ("-----BEGIN PRIVATE KEY-----" + " " * MANY + "DEK-Info:" + " " * MANY + "-----END PRIVATE KEY-----", 1),
    ],
    ids=["no END", "labels", "no BEGIN", "one END", "other END", "no label", "headers"],
)
def test_pem_is_read_in_one_pass_whatever_begins_in_it(text: str, found: int) -> None:
    """With a time that grows by the square of the length each of them would take an hour."""
    assert len(pem_blocks(text)) == found


PARTS = st.sampled_from(
    [
        "-----BEGIN A-----",
        "-----END A-----",
        "-----BEGIN B-----",
        "-----END B-----",
        "BEGIN A-----",
        "-----",
        "Zm9v",
        "\n",
    ]
)


@given(st.lists(PARTS, max_size=12).map("".join))
def test_the_blocks_are_those_that_begin_and_end_by_one_label(text: str) -> None:
    found = re.findall(r"-----BEGIN ([A-Z0-9 ]{1,40})-----(.*?)-----END \1-----", text, re.DOTALL)
    assert [(each.label, "".join(each.text.splitlines()[1:-1])) for each in pem_blocks(text)] == [
        (label, "".join(body.split())) for label, body in found
    ]


def sequence(content: bytes) -> bytes:
    return b"\x30\x84" + len(content).to_bytes(4, "big") + content


@pytest.mark.parametrize("before", [0, 1, 6], ids=["fields", "name", "extensions"])
def test_a_certificate_of_millions_of_elements_takes_no_memory_for_each(before: int) -> None:
    millions = b"\x05\x00" * MEBIBYTE
    fields = b"" if before == 0 else sequence(b"") * before
    tracemalloc.start()
    read_certificate(sequence(sequence(fields + (millions if before == 0 else sequence(millions)))))
    element(sequence(millions), SEQUENCE).child(3)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20 * MEBIBYTE


def certificates_of(path: Path) -> int:
    return len(load_trust(Store(location=str(path)), ()).certificates)


def test_a_store_of_too_many_certificates_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_CERTIFICATES", 3)
    block = "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n"
    (tmp_path / "ca.pem").write_text(block * 3, encoding="utf-8")
    assert certificates_of(tmp_path / "ca.pem") == 3
    (tmp_path / "ca.pem").write_text(block * 4, encoding="utf-8")
    with pytest.raises(TlsFailed, match=r"ca\.pem has 4 certificates; the maximum is 3"):
        certificates_of(tmp_path / "ca.pem")
    (tmp_path / "more.pem").write_text(block, encoding="utf-8")
    with pytest.raises(TlsFailed, match="has 5 certificates"):
        certificates_of(tmp_path)


def test_an_empty_certificate_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n", encoding="utf-8")
    entry = struct.pack(">IH", 2, 0) + bytes(8) + b"\0\5X.509" + bytes(4)
    (tmp_path / "ca.jks").write_bytes(MAGIC + struct.pack(">II", 2, 1) + entry + bytes(20))
    for name in ("ca.pem", "ca.jks"):
        with pytest.raises(TlsFailed, match=r"a certificate of .* is empty"):
            certificates_of(tmp_path / name)


def integer(number: int) -> bytes:
    return tlv(0x02, number.to_bytes(number.bit_length() // 8 + 1, "big"))


@pytest.mark.parametrize("number", [2048, MAX_ITERATIONS, MAX_ITERATIONS + 1, 1 << 31, 1 << 400])
@pytest.mark.parametrize("where", ["PBKDF2", "PBES1", "MacData"])
def test_what_asks_for_too_many_iterations_is_not_opened(where: str, number: int) -> None:
    salt = tlv(0x04, bytes(8))
    parameters = {
        "PBKDF2": tlv(0x30, salt + integer(number) + tlv(0x30, b"")),
        "PBES1": tlv(0x30, salt + integer(number)),
        "MacData": tlv(0x30, tlv(0x30, b"") + salt + integer(number)),
    }[where]
    for der in (parameters, tlv(0x30, tlv(0xA0, tlv(0x04, tlv(0x30, parameters))))):
        assert ("iterations" in iterations_problem(der)) == (number > MAX_ITERATIONS)


def test_an_encrypted_key_and_a_pkcs12_file_of_hours_are_refused(certificates: Certificates, tmp_path: Path) -> None:
    hours = 2_000_000_000
    key_info = tlv(0x30, tlv(0x30, tlv(0x30, tlv(0x04, bytes(8)) + integer(hours))) + tlv(0x04, bytes(16)))
    text = f"-----BEGIN ENCRYPTED PRIVATE KEY-----\n{base64.b64encode(key_info).decode()}\n-----END ENCRYPTED PRIVATE KEY-----"
    (tmp_path / "key.pem").write_text(text, encoding="utf-8")
    store = Store(
        location=str(certificates.file("broker.pem")), key_location=str(tmp_path / "key.pem"), password=Secret("x")
    )
    with pytest.raises(TlsFailed, match=r"key\.pem cannot be used: it needs more than 1000000 iterations"):
        load_identity(store, ())
    with pytest.raises(TlsFailed, match="needs more than 1000000 iterations"):
        read_pkcs12(key_info, "store.p12", Secret("x"))


def test_a_store_with_iterations_as_they_are_used_is_opened(certificates: Certificates) -> None:
    key = load_pem_private_key(certificates.file("broker.key").read_bytes(), None)
    encryption = (
        PrivateFormat.PKCS12.encryption_builder()
        .kdf_rounds(20_000)
        .key_cert_algorithm(PBES.PBESv2SHA256AndAES256CBC)
        .build(KEY_PASSWORD.encode())
    )
    made = serialize_key_and_certificates(b"k", key, None, None, encryption)  # type: ignore[arg-type]
    assert read_pkcs12(made, "store.p12", Secret(KEY_PASSWORD)).key


def test_more_elements_than_a_store_needs_are_refused() -> None:
    assert "elements" in iterations_problem(sequence(b"\x05\x00" * MEBIBYTE))
    assert iterations_problem(b"\x30\x80\x05") == "", "the decoder reports that it is no DER"
