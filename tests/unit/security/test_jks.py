"""The reader of Java key stores: it returns what the test's writer has written, and fails cleanly on any other bytes."""

from __future__ import annotations

import hashlib
import random
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_producer.common.secret import Secret
from spark_producer.errors import TlsFailed
from spark_producer.security.jks import MAGIC, ProtectedKey, decrypt_key, read_jks
from spark_producer.security.pem import der_of, pem_blocks
from tests.support.campaigns import sample_and_campaign

STORES = Path(__file__).parent / "stores"
REAL = [(STORES / name).read_bytes() for name in ("own.jks", "trust.jks")]
ALGORITHM = bytes.fromhex("300e060a2b060104012a021101010500")

passwords = st.text(st.characters(codec="utf-16-be"), max_size=8)


def tlv(tag: int, content: bytes) -> bytes:
    size = len(content)
    length = bytes((size,)) if size < 128 else b"\x82" + size.to_bytes(2, "big")
    return bytes((tag,)) + length + content


def protect(key: bytes, password: str, salt: bytes) -> bytes:
    """As `KeyProtector.protect` of Java does it."""
    characters = password.encode("utf-16-be")
    block, hidden = salt, bytearray()
    for at in range(0, len(key), 20):
        block = hashlib.sha1(characters + block).digest()
        hidden += bytes(a ^ b for a, b in zip(key[at : at + 20], block, strict=False))
    content = salt + bytes(hidden) + hashlib.sha1(characters + key).digest()
    return tlv(0x30, ALGORITHM + tlv(0x04, content))


def written(entries: list[bytes], password: str, version: int = 2) -> bytes:
    body = MAGIC + struct.pack(">II", version, len(entries)) + b"".join(entries)
    return body + hashlib.sha1(password.encode("utf-16-be") + b"Mighty Aphrodite" + body).digest()


def certificate(content: bytes, version: int) -> bytes:
    kind = b"\0\5X.509" if version == 2 else b""
    return kind + struct.pack(">I", len(content)) + content


def entry(tag: int, alias: str, content: bytes) -> bytes:
    name = alias.encode()
    return struct.pack(">IH", tag, len(name)) + name + bytes(8) + content


@pytest.mark.covers("SEC7")
@pytest.mark.slow
@settings(max_examples=50)
@given(
    st.lists(st.binary(max_size=200), max_size=3),
    st.lists(st.tuples(st.binary(max_size=200), st.lists(st.binary(max_size=50), max_size=3)), max_size=2),
    passwords,
    passwords,
    st.binary(min_size=20, max_size=20),
    st.sampled_from([1, 2]),
)
def test_what_was_written_is_read(
    trusted: list[bytes],
    keys: list[tuple[bytes, list[bytes]]],
    password: str,
    key_password: str,
    salt: bytes,
    version: int,
) -> None:
    entries = [entry(2, f"ca-{number}", certificate(one, version)) for number, one in enumerate(trusted)]
    for key, chain in keys:
        protected = protect(key, key_password, salt)
        held = struct.pack(">I", len(protected)) + protected + struct.pack(">I", len(chain))
        entries.append(entry(1, "own", held + b"".join(certificate(one, version) for one in chain)))
    found = read_jks(written(entries, password, version), "store.jks", Secret(password))
    assert found.certificates == tuple(trusted)
    assert [key.chain for key in found.keys] == [tuple(chain) for _, chain in keys]
    for (key, _), one in zip(keys, found.keys, strict=True):
        assert der_of(pem_blocks(decrypt_key(one, "store.jks", Secret(key_password)).reveal())[0]) == key
        with pytest.raises(TlsFailed, match="does not decrypt its key 'own'"):
            decrypt_key(one, "store.jks", Secret(key_password + "x"))


@pytest.mark.slow
@pytest.mark.covers("SEC9")
@given(passwords.filter(lambda text: text != "store-pw"))
def test_only_one_password_fits(password: str) -> None:
    with pytest.raises(TlsFailed, match="the password of the store is wrong, or the file is damaged"):
        read_jks(REAL[0], "own.jks", Secret(password))


@pytest.mark.covers("SEC9")
def test_a_single_bit_is_noticed_if_there_is_a_password() -> None:
    for at in range(4, len(REAL[1])):
        damaged = bytearray(REAL[1])
        damaged[at] ^= 1
        with pytest.raises(TlsFailed, match="wrong, or the file is damaged"):
            read_jks(bytes(damaged), "trust.jks", Secret("store-pw"))


@pytest.mark.covers("SEC9")
@pytest.mark.parametrize(
    "body",
    [
        struct.pack(">II", 3, 0),
        struct.pack(">II", 2, 2**32 - 1),
        struct.pack(">II", 2, 0) + b"more",
        struct.pack(">II", 2, 1) + entry(3, "secret", b""),
        struct.pack(">II", 2, 1) + entry(2, "ca", b"\0\5X.509" + struct.pack(">I", 2**32 - 1)),
        struct.pack(">II", 2, 1) + entry(1, "own", struct.pack(">II", 0, 2**32 - 1)),
    ],
)
def test_damage_without_a_password_is_reported_and_claimed_sizes_take_no_memory(body: bytes) -> None:
    with pytest.raises(TlsFailed, match=r"store\.jks cannot be used: it is damaged"):
        read_jks(MAGIC + body + bytes(20), "store.jks", None)


@pytest.mark.covers("SEC9")
@pytest.mark.parametrize(
    ("protected", "message"),
    [
        (b"", "is damaged"),
        (tlv(0x30, ALGORITHM), "is damaged"),
        (tlv(0x30, tlv(0x30, tlv(0x06, b"\x2a")) + tlv(0x04, bytes(60))), "has a protection that"),
        (tlv(0x30, ALGORITHM + tlv(0x04, bytes(39))), "has a protection that"),
        (tlv(0x30, ALGORITHM + tlv(0x04, bytes(40))), "the password does not decrypt its key"),
    ],
)
def test_keys_that_cannot_be_opened(protected: bytes, message: str) -> None:
    with pytest.raises(TlsFailed, match=message):
        decrypt_key(ProtectedKey("own", protected, ()), "store.jks", Secret("pw"))


def test_an_alias_cannot_control_a_terminal() -> None:
    key = ProtectedKey("own", b"", ())
    data = written([entry(1, "\x1b[2J", struct.pack(">II", 0, 0))], "")
    assert read_jks(data, "store.jks", None).keys == (key._replace(alias="\\x1b[2J"),)


@pytest.mark.covers("SEC9")
@given(st.binary(max_size=300))
def test_no_bytes_raise_anything_but_our_error(data: bytes) -> None:
    refused = open_all(MAGIC + data)
    assert refused is None or is_clear(refused)


@pytest.mark.covers("SEC9")
@pytest.mark.parametrize("cases", sample_and_campaign([2_000, 1_000_000]))
def test_damaged_files_raise_nothing_but_our_error(cases: int) -> None:
    chance = random.Random(cases)
    refusals = 0
    for _ in range(cases):
        data = bytearray(chance.choice(REAL))
        for _ in range(chance.randint(1, 4)):
            at = chance.randrange(4, len(data))
            if chance.random() < 0.2:
                del data[at : at + chance.randrange(30)]
            elif chance.random() < 0.2:
                data[at:at] = chance.randbytes(chance.randrange(30))
            else:
                data[at] = chance.choice([0, 1, 2, 0x7F, 0x80, 0xFF, chance.randrange(256)])
            if len(data) < 5:
                break
        refused = open_all(bytes(data))
        assert refused is None or is_clear(refused)
        refusals += refused is not None
    assert cases / 2 < refusals < cases, "a byte within a certificate goes unnoticed without a password"


def is_clear(refused: TlsFailed) -> bool:
    return refused.fatal and len(str(refused)) < 1000


def open_all(data: bytes) -> TlsFailed | None:
    """Read a store and open its keys; return our error, if there is one. Any other goes through."""
    try:
        for key in read_jks(data, "store.jks", None).keys:
            decrypt_key(key, "store.jks", Secret("key-pw"))
    except TlsFailed as error:
        return error
    return None
