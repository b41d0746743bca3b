"""Stores of every format give the same certificates and keys, and the error of a bad one has its name.

The files in `stores/` are real ones, made by keytool of Java 17, and valid until 2081:

    keytool -genkeypair -alias own -keyalg EC -groupname secp256r1 -dname CN=alice -validity 20000 \
        -storetype JKS -keystore own.jks -storepass store-pw -keypass key-pw
    keytool -exportcert -alias own -keystore own.jks -storepass store-pw -rfc -file jks-own.pem
    keytool -importcert -noprompt -alias ca -file jks-own.pem -storetype JKS -keystore trust.jks -storepass store-pw

and `own12.jks`, `pkcs12-own.pem`, `trust.p12` in the same way with `-storetype PKCS12`.
"""

from __future__ import annotations

import os
import ssl
import stat
import sys
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from spark_producer.common.secret import Secret
from spark_producer.errors import ConfigError, PyProducerError, TlsFailed
from spark_producer.security import Store, TlsSettings
from spark_producer.security.contexts import client_context, server_context
from spark_producer.security.key_files import key_file
from spark_producer.security.stores import MAX_STORE_BYTES, load_trust
from spark_producer.security.tls_stream import TlsStream
from tests.support.certificates import KEY_PASSWORD, Certificates
from tests.unit.security.memory_peer import MemoryPeer, shake

STORES = Path(__file__).parent / "stores"
STORE_PASSWORD = Secret("store-pw")
OWN_PASSWORD = Secret("key-pw")
LONG = "l" * 2000


def on_one_line(text: str) -> str:
    return " ".join(text.split("\n"))


def with_written_ends(text: str) -> str:
    return text.replace("\n", "\\n")


def in_windows(text: str) -> str:
    return text.replace("\n", "\r\n")


LAYOUTS = pytest.mark.parametrize("layout", [str, on_one_line, with_written_ends, in_windows])


def der_of(pem: Path) -> bytes:
    return ssl.PEM_cert_to_DER_cert(pem.read_text())


@pytest.mark.covers("SEC7")
@pytest.mark.parametrize("password", [STORE_PASSWORD, None], ids=["password", "none"])
def test_a_truststore_in_jks_needs_no_password_as_in_java(password: Secret | None) -> None:
    store = Store(location=str(STORES / "trust.jks"), declared_type="JKS", password=password)
    assert load_trust(store, ()).certificates == (der_of(STORES / "jks-own.pem"),)


@pytest.mark.covers("SEC7")
def test_the_first_certificate_of_a_key_is_trusted_as_in_java() -> None:
    store = Store(location=str(STORES / "own.jks"), password=STORE_PASSWORD)
    assert load_trust(store, ()).certificates == (der_of(STORES / "jks-own.pem"),)


@pytest.mark.covers("SEC7", "SEC8")
@pytest.mark.parametrize("name", ["trust.p12", "own12.jks"])
def test_a_truststore_in_pkcs12_under_any_name_and_type(name: str) -> None:
    store = Store(location=str(STORES / name), declared_type="JKS", password=STORE_PASSWORD)
    assert load_trust(store, ()).certificates == (der_of(STORES / "pkcs12-own.pem"),)


@pytest.mark.covers("SEC7")
def test_a_file_of_pem_may_hold_several_and_text_between_them(tmp_path: Path) -> None:
    files = [STORES / "jks-own.pem", STORES / "pkcs12-own.pem"]
    (tmp_path / "ca.jks").write_text("# Our CAs\n" + "\nand\n".join(file.read_text() for file in files))
    store = Store(location=str(tmp_path / "ca.jks"))
    assert load_trust(store, ()).certificates == tuple(map(der_of, files))


@pytest.mark.covers("SEC7")
def test_a_folder_is_read_without_its_hidden_files(tmp_path: Path) -> None:
    (tmp_path / "b.crt").write_text((STORES / "jks-own.pem").read_text())
    (tmp_path / "a.pem").write_text((STORES / "pkcs12-own.pem").read_text())
    (tmp_path / ".hidden").write_text("nothing of the kind")
    (tmp_path / "folder").mkdir()
    expected = der_of(STORES / "pkcs12-own.pem"), der_of(STORES / "jks-own.pem")
    assert load_trust(Store(location=str(tmp_path)), ()).certificates == expected


@pytest.mark.covers("SEC7", "SEC8")
@LAYOUTS
def test_pem_text_may_lie_on_one_line(layout: Callable[[str], str]) -> None:
    text = "".join((STORES / name).read_text() for name in ("jks-own.pem", "pkcs12-own.pem"))
    expected = der_of(STORES / "jks-own.pem"), der_of(STORES / "pkcs12-own.pem")
    assert load_trust(Store(pem=layout(text)), ()).certificates == expected


Shown = Callable[[Store, Path], str]


@pytest.fixture
def shown_name(certificates: Certificates) -> Shown:
    """Gives the name in the certificate that a server, which trusts one CA, gets from a client with an identity."""

    def name(identity: Store, ca: Path) -> str:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificates.file("broker.pem"))
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(ca)
        peer = MemoryPeer(context)
        settings = TlsSettings(identity=identity, verify=False)
        allowed = ("env:TLS_*", f"file:{certificates.home}/")
        shake(TlsStream(client_context(settings, allowed), "localhost"), peer)
        subject = (peer.tls.getpeercert() or {})["subject"]
        return str(dict(pair for group in subject for pair in group)["commonName"])  # type: ignore[misc]

    return name


@pytest.mark.covers("SEC7")
def test_a_keystore_in_jks_has_a_password_for_its_key_too(shown_name: Shown) -> None:
    store = Store(location=str(STORES / "own.jks"), password=STORE_PASSWORD, key_password=OWN_PASSWORD)
    assert shown_name(store, STORES / "jks-own.pem") == "alice"


@pytest.mark.covers("SEC8")
@pytest.mark.parametrize("declared", ["JKS", "PKCS12", ""])
def test_a_keystore_named_jks_may_be_pkcs12(shown_name: Shown, declared: str) -> None:
    store = Store(location=str(STORES / "own12.jks"), declared_type=declared, password=STORE_PASSWORD)
    assert shown_name(store, STORES / "pkcs12-own.pem") == "alice"


@pytest.mark.covers("SEC7")
def test_key_and_chain_in_one_file_or_in_two(shown_name: Shown, certificates: Certificates) -> None:
    for store in (
        Store(location=str(certificates.file("client.pem"))),
        Store(location=str(certificates.file("client.crt")), key_location=str(certificates.file("client.key"))),
    ):
        assert shown_name(store, certificates.ca) == "alice"


@pytest.mark.covers("SEC8")
@LAYOUTS
def test_key_and_chain_as_text(shown_name: Shown, certificates: Certificates, layout: Callable[[str], str]) -> None:
    chain, key = (layout(certificates.file(name).read_text()) for name in ("client.crt", "client.locked.key"))
    store = Store(pem=chain, key_pem=Secret(key), key_password=Secret(KEY_PASSWORD))
    assert shown_name(store, certificates.ca) == "alice"


@pytest.mark.covers("SEC8")
@LAYOUTS
def test_a_key_that_openssl_encrypted_in_its_old_way(
    shown_name: Shown, certificates: Certificates, layout: Callable[[str], str]
) -> None:
    key = load_pem_private_key(certificates.file("client.key").read_bytes(), None)
    text = key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, BestAvailableEncryption(b"old"))
    assert b"Proc-Type: 4,ENCRYPTED" in text
    chain = certificates.file("client.crt").read_text()
    store = Store(pem=chain, key_pem=Secret(layout(text.decode())), key_password=Secret("old"))
    assert shown_name(store, certificates.ca) == "alice"


@pytest.mark.covers("SEC7")
def test_references_are_resolved_when_the_context_is_built(
    shown_name: Shown, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TLS_KEY_PASSWORD", KEY_PASSWORD)
    key = Secret(f"${{file:{certificates.file('client.locked.key')}}}")
    chain = certificates.file("client.crt").read_text()
    store = Store(pem=chain, key_pem=key, key_password=Secret("${env:TLS_KEY_PASSWORD}"))
    assert shown_name(store, certificates.ca) == "alice"
    with pytest.raises(ConfigError, match="not allowed"):
        client_context(TlsSettings(identity=store), ("env:TLS_*",))


def locked(certificates: Certificates, password: str | None) -> Store:
    return Store(
        location=str(certificates.file("client.crt")),
        key_location=str(certificates.file("client.locked.key")),
        key_password=Secret(password) if password is not None else None,
    )


WRONG: dict[str, tuple[Callable[[Certificates], Store], str]] = {
    "jks, store's password": (
        lambda _: Store(location=str(STORES / "own.jks"), password=Secret("canary")),
        r"own.jks cannot be used: the password of the store is wrong, or the file is damaged",
    ),
    "jks, key's password": (
        lambda _: Store(location=str(STORES / "own.jks"), password=STORE_PASSWORD, key_password=Secret("canary")),
        r"own.jks cannot be used: the password does not decrypt its key 'own' \(ssl.key.password",
    ),
    "jks, no password": (
        lambda _: Store(location=str(STORES / "own.jks")),
        r"own.jks cannot be used: its key 'own' needs a password. Set ssl.keystore.password",
    ),
    "jks, no key": (
        lambda _: Store(location=str(STORES / "trust.jks"), password=STORE_PASSWORD),
        r"no private key in .*trust.jks. Add it to the keystore",
    ),
    "pkcs12, password": (
        lambda _: Store(location=str(STORES / "own12.jks"), password=Secret("canary")),
        r"own12.jks cannot be used: the password is wrong, or the file is damaged",
    ),
    "pkcs12, no password": (
        lambda _: Store(location=str(STORES / "own12.jks")),
        r"own12.jks cannot be used: it needs a password",
    ),
    "pkcs12, no key": (
        lambda _: Store(location=str(STORES / "trust.p12"), password=STORE_PASSWORD),
        r"no private key in .*trust.p12. Add it",
    ),
    "pem, password": (
        lambda made: locked(made, "canary"),
        r"client.locked.key cannot be used: ssl.key.password does not decrypt",
    ),
    "pem, no password": (
        lambda made: locked(made, None),
        r"client.locked.key cannot be used: the key is encrypted. Set ssl.key.password",
    ),
    "pem, a password too long": (lambda made: locked(made, LONG), r"a key's password has at most 1024 bytes"),
    "pem, another key": (
        lambda made: replace(locked(made, None), key_location=str(made.file("broker.key"))),
        r"broker.key cannot be used: the key does not match the certificate",
    ),
    "pem, no key": (
        lambda made: Store(location=str(made.file("client.crt"))),
        r"no private key in .*client.crt. Add it to the keystore, or set ssl.key.location",
    ),
    "pem, no certificate": (
        lambda made: Store(location=str(made.file("client.key"))),
        r"no certificate for the private key in .*client.key",
    ),
    "pem text, no key": (
        lambda made: Store(pem=made.file("client.crt").read_text(), key_pem=Secret("canary")),
        r"ssl.keystore.key has no private key in PEM",
    ),
    "pem text, a damaged key": (
        lambda made: Store(
            pem=made.file("client.crt").read_text(),
            key_pem=Secret("-----BEGIN PRIVATE KEY-----canary-----END PRIVATE KEY-----"),
        ),
        r"the PEM text and ssl.keystore.key cannot be used: OpenSSL reports ",
    ),
    "no file": (
        lambda _: Store(location="/absent/file"),
        r"^ssl.keystore.location: cannot read /absent/file on this machine: No such file or directory",
    ),
    "no certificate file": (
        lambda made: Store(location="/absent/crt", key_location=str(made.file("client.key"))),
        r"^ssl.certificate.location: cannot read /absent/crt on this machine: ",
    ),
    "no key file": (
        lambda made: Store(location=str(made.file("client.crt")), key_location="/absent/key"),
        r"^ssl.key.location: cannot read /absent/key on this machine: ",
    ),
}


@pytest.mark.covers("SEC9")
@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_with_a_keystore_is_reported_without_a_prompt_or_a_secret(
    certificates: Certificates, case: str
) -> None:
    make, message = WRONG[case]
    store = make(certificates)
    with pytest.raises((TlsFailed, ConfigError), match=message) as raised:
        client_context(TlsSettings(identity=store), ())
    assert isinstance(raised.value, ConfigError) or getattr(raised.value, "fatal", False)
    reported = "".join(traceback.TracebackException.from_exception(raised.value, capture_locals=True).format())
    key = certificates.file("client.key").read_text().splitlines()[1]
    for secret in ("canary", "store-pw", "key-pw", LONG[:100], key, KEY_PASSWORD):
        assert secret not in reported.replace(str(STORES), ""), f"{secret} shows"


def trust_of(content: bytes) -> Callable[[Path], Store]:
    def make(folder: Path) -> Store:
        (folder / "store.jks").write_bytes(content)
        return Store(location=str(folder / "store.jks"))

    return make


@pytest.mark.covers("SEC9")
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (trust_of(b"\xce\xce\xce\xce\0\0\0\2"), r"store.jks is a JCEKS key store.*keytool -importkeystore"),
        (trust_of(b"anything"), "store.jks is neither PEM, JKS nor PKCS12"),
        (trust_of(b""), "store.jks is neither PEM, JKS nor PKCS12"),
        (trust_of(b"-----BEGIN CERTIFICATE-----"), r"no certificate in .*store.jks, so that nothing could be trusted"),
        (
            trust_of(b"-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----"),
            "certificate 1 of .*store.jks: it is not base64",
        ),
        (
            trust_of(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"),
            r"certificate 1 of .*store.jks cannot be read: ",
        ),
        (trust_of((STORES / "trust.jks").read_bytes()[:-30]), r"store.jks cannot be used: it is damaged"),
        (trust_of((STORES / "trust.p12").read_bytes()[:-30]), r"store.jks cannot be used: it needs a password"),
        (lambda folder: Store(location=str(folder)), "no certificate in"),
        (lambda folder: Store(pem="nothing"), "no certificate in the PEM text of the truststore"),
    ],
)
def test_what_is_wrong_with_a_truststore_is_reported(
    make: Callable[[Path], Store], message: str, tmp_path: Path
) -> None:
    with pytest.raises(TlsFailed, match=message) as raised:
        client_context(TlsSettings(trust=make(tmp_path)), ())
    assert raised.value.fatal


@pytest.mark.covers("SEC9")
def test_a_file_that_is_too_large_is_not_read_whole(tmp_path: Path) -> None:
    with (tmp_path / "disk").open("wb") as file:
        file.truncate(MAX_STORE_BYTES + 1)
    with pytest.raises(TlsFailed, match="has more than 16777216 bytes"):
        load_trust(Store(location=str(tmp_path / "disk")), ())


@pytest.mark.covers("SEC9")
@pytest.mark.parametrize("where", ["location", "key_location"])
def test_a_pipe_is_refused_instead_of_waiting_for_its_writer(
    where: str, tmp_path: Path, certificates: Certificates
) -> None:
    os.mkfifo(tmp_path / "pipe")
    identity = Store(location=str(certificates.file("client.crt")), key_location=str(certificates.file("client.key")))
    pipe = str(tmp_path / "pipe")
    identity = replace(identity, location=pipe) if where == "location" else replace(identity, key_location=pipe)
    with pytest.raises(TlsFailed, match="pipe is not a regular file"):
        client_context(TlsSettings(identity=identity), ())


@pytest.mark.covers("SEC9")
def test_without_cryptography_pkcs12_is_refused_with_the_command_that_converts_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.serialization.pkcs12", None)
    path = STORES / "trust.p12"
    with pytest.raises(TlsFailed) as raised:
        load_trust(Store(location=str(path), password=STORE_PASSWORD), ())
    assert raised.value.fatal
    assert "pyproducer[pkcs12]" in str(raised.value)
    assert f"openssl pkcs12 -in {path} -out {path}.pem -nodes" in str(raised.value)


def test_a_listeners_key_may_be_encrypted(certificates: Certificates) -> None:
    files = str(certificates.file("broker.crt")), str(certificates.file("broker.locked.key"))
    assert server_context(*files, key_password=Secret(KEY_PASSWORD)).info.identity == " and ".join(files)
    with pytest.raises(PyProducerError, match="the key is encrypted"):
        server_context(*files)


def test_a_key_file_has_no_name_in_the_file_system() -> None:
    with key_file(Secret("key")) as path:
        assert Path(path).read_text() == "key"
        assert path.startswith("/proc/self/fd/") or sys.platform != "linux"
    assert not Path(path).exists()


def test_a_key_file_on_other_systems_is_the_owners_alone_and_gone_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delattr(os, "memfd_create", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with key_file(Secret("key")) as path:
        assert Path(path).read_text() == "key"
        assert stat.S_IMODE(Path(path).stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match="of the reader"), key_file(Secret("key")):
        raise ValueError("of the reader")
    assert list(tmp_path.iterdir()) == []
