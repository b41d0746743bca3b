"""Targets: messages of a login from either side, tokens, key stores, and texts that hold secrets."""

from __future__ import annotations

import contextlib
import functools
import json
from functools import partial
from pathlib import Path
from unittest import mock

from spark_producer.broker import Users
from spark_producer.broker.security.mechanisms import AuthenticationRefused, start
from spark_producer.broker.security.settings import MECHANISMS
from spark_producer.common.java_properties import properties_of
from spark_producer.common.secret import Secret
from spark_producer.config.jaas import parse_jaas
from spark_producer.errors import AuthenticationFailed, ConfigError, TlsFailed
from spark_producer.network.auth import token_endpoint
from spark_producer.security import scram
from spark_producer.security.jks import decrypt_key, read_jks
from spark_producer.security.oauthbearer import failure_reason
from spark_producer.security.pem import der_of, pem_blocks
from spark_producer.security.pkcs12 import read_pkcs12
from spark_producer.security.token import jwt_expiry
from spark_producer.security.x509 import read_certificate
from tests.fuzz.target import single
from tests.unit.broker.security.secured_broker import PASSWORD, token
from tests.unit.config.test_jaas import CLASSES
from tests.unit.security.test_scram import SERVER_FINAL, SERVER_FIRST, login

STORES = Path(__file__).parents[1] / "unit" / "security" / "stores"
BETWEEN = b"\0\xff\0"
"""separates the messages of one dialog"""


def _files(*endings: str) -> list[bytes]:
    return [path.read_bytes() for path in sorted(STORES.iterdir()) if path.name.endswith(endings)]


def _jks(data: bytes) -> None:
    with contextlib.suppress(TlsFailed):
        for key in read_jks(data, "store", None).keys:
            decrypt_key(key, "store", Secret("key-pw"))


def _pkcs12(data: bytes) -> None:
    with contextlib.suppress(TlsFailed):
        read_pkcs12(data, "store", Secret("store-pw"))


def _pem(data: bytes) -> None:
    for block in pem_blocks(data.decode("latin-1")):
        with contextlib.suppress(ValueError):
            read_certificate(der_of(block))


def _certificates() -> list[bytes]:
    return [
        der_of(block) for text in _files(".pem") for block in pem_blocks(text.decode()) if block.label == "CERTIFICATE"
    ] + [certificate for store in _files(".jks") for certificate in _jks_certificates(store)]


def _jks_certificates(store: bytes) -> tuple[bytes, ...]:
    try:
        return read_jks(store, "store", None).certificates
    except TlsFailed:
        return ()


def _certificate(data: bytes) -> None:
    read_certificate(data)


def _jaas(data: bytes) -> None:
    with contextlib.suppress(ConfigError):
        parse_jaas(Secret(data.decode("utf-8", "replace")))


def _properties(data: bytes) -> None:
    for _ in properties_of(data.decode("utf-8", "replace")):
        pass


def _server_says(data: bytes) -> None:
    """SCRAM's client: whatever a broker says that does not know the password, it is refused."""
    client = login()
    next(client)
    with mock.patch.object(
        scram, "salted_password", return_value=bytes(32)
    ):  # the cost of iterations is not under test
        try:
            for message in (*data.split(BETWEEN), b"", b""):
                client.send(message)
        except AuthenticationFailed:
            return
        except StopIteration:
            raise AssertionError("a broker that does not know the password was believed") from None
    raise AssertionError("the login has no end")


@functools.cache
def _users() -> Users:
    return Users({"ada": PASSWORD})


def _client_says(data: bytes) -> None:
    """The broker's side of every mechanism. The first byte chooses one."""
    if not data:
        return
    mechanism = MECHANISMS[data[0] % len(MECHANISMS)]
    server = start(mechanism, _users(), lambda: 1_000_000.0)
    try:
        for message in (*data[1:].split(BETWEEN), b"", b"", b""):
            server.send(message)
    except AuthenticationRefused:
        return
    except StopIteration:
        known = (PASSWORD.encode() in data, mechanism == "OAUTHBEARER" and b"auth=" in data)
        assert any(known), "a client that does not know the password was let in"


def _client_dialogs() -> list[bytes]:
    plain, bearer = MECHANISMS.index("PLAIN"), MECHANISMS.index("OAUTHBEARER")
    found = [bytes([plain]) + b"\0ada\0wrong", bytes([bearer]) + f"n,,\1auth=Bearer {token('ada', 900)}\1\1".encode()]
    for place, name in enumerate(MECHANISMS):
        if name.startswith("SCRAM"):
            found.append(bytes([place]) + BETWEEN.join((b"n,,n=ada,r=abc", b"c=biws,r=abcdef,p=AAAA")))
    return found


def _token(data: bytes) -> None:
    """What a token endpoint and a broker answer, and a token itself."""
    failure_reason(data)
    jwt_expiry(Secret(data.decode("utf-8", "replace")))
    token_endpoint._token(data, 0.0)
    token_endpoint._token_type_problem(data)
    token_endpoint._lifetime_problem(data)


def _tokens() -> list[bytes]:
    answer = {"access_token": token("ada", 1001), "expires_in": 3600, "token_type": "Bearer"}
    return [json.dumps(answer).encode(), token("ada", 1001).encode(), b'{"status":"invalid_token","scope":"kafka"}']


JAAS = [f'{name} required username=\'u\' password="p\\"q" ;'.encode() for name in CLASSES.values()]
PROPERTIES = [b"# text\nbootstrap.servers = host:9092\npassword=a\\\n  b\\u00e4\nkey:value\n"]

TARGETS = (
    single("jks", "Java's key stores", partial(_files, ".jks"), _jks),
    single("pkcs12", "key stores in PKCS12", partial(_files, ".p12", "12.jks"), _pkcs12),
    single("pem", "certificates and keys as text", partial(_files, ".pem"), _pem, (b"-----BEGIN ", b"-----END ", b"-----")),
    single("certificates", "certificates of peers, for messages", _certificates, _certificate),
    single("jaas", "`sasl.jaas.config`", partial(list, JAAS), _jaas, (b"${env:A}", b"${", b'"', b"\\", b"=", b";", b"'")),
    single("properties", "files of Java's properties", partial(list, PROPERTIES), _properties, (b"\\u", b"\\\r\n", b"\\")),
    single(
        "scram", "what a broker says in a login by SCRAM", partial(list, [SERVER_FIRST + BETWEEN + SERVER_FINAL]), _server_says,
        (BETWEEN, b"r=", b"s=", b"i=", b"v=", b"e=", b",", b"i=2147483648"),
    ),
    single(
        "clients", "what a client says in a login at the embedded broker", _client_dialogs, _client_says,
        (BETWEEN, b"n,,", b"a=", b"n=ada", b"\1", b"auth=Bearer ", b"\0", b"p=", b","),
    ),
    single("tokens", "tokens, and answers of their endpoints", _tokens, _token, (b".", b"e30", b'"exp"', b"1e999", b"[" * 300)),
)  # fmt: skip
