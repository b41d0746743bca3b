"""The server's side of the mechanisms, with the client's side of this package and with messages written by hand."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Generator
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_producer.broker import Users
from spark_producer.broker.security.mechanisms import (
    INVALID_TOKEN,
    Authenticated,
    AuthenticationRefused,
    bearer,
    plain,
    scram,
    start,
)
from spark_producer.broker.security.settings import MECHANISMS
from spark_producer.errors import AuthenticationFailed
from spark_producer.security import scram as derived
from tests.unit.broker.security.secured_broker import PASSWORD, messages_of, token

SCRAMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
NOW_MS = 1_000_000.0


def talk(client: Generator[bytes, bytes, None], server: Generator[bytes, bytes, Authenticated]) -> Authenticated:
    """Both sides to the end; raises what either raises."""
    next(server)
    message = next(client)
    while True:
        try:
            response = server.send(message)
        except StopIteration as end:
            accepted: Authenticated = end.value
            break
        message = client.send(response)
    with pytest.raises(StopIteration):
        client.send(accepted.last)
    return accepted


def refused(server: Generator[bytes, bytes, Authenticated], *sent: bytes) -> str | None:
    """The error of a client that is refused after its last message."""
    next(server)
    for message in sent[:-1]:
        server.send(message)
    with pytest.raises(AuthenticationRefused) as raised:
        server.send(sent[-1])
    return raised.value.client_message


@pytest.mark.parametrize("mechanism", SCRAMS)
@pytest.mark.parametrize(
    ("user", "password"),
    [("ada", "simple"), ("a,b=c", "=,"), ("x", "Ⅷ \u00ad\u00a0e\u0301"), (" blank ", " blank "), ("long", "p" * 5000)],
)
def test_both_sides_of_scram_agree(mechanism: str, user: str, password: str) -> None:
    server = scram(mechanism, Users({user: password}))
    assert talk(messages_of(mechanism, user, password), server).user == user


def test_both_sides_of_plain_agree() -> None:
    for user, password in (("ada", "simple"), ("Ünï", "Ⅷ,=")):
        assert talk(messages_of("PLAIN", user, password), plain(Users({user: password}))) == Authenticated(user)


def test_the_vector_of_rfc_7677(monkeypatch: pytest.MonkeyPatch) -> None:
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    monkeypatch.setattr(secrets, "token_bytes", lambda count: salt)
    server = scram("SCRAM-SHA-256", Users({"user": "pencil"}), lambda: "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    next(server)
    first = server.send(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO")
    nonce = b"rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    assert first == b"r=" + nonce + b",s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    with pytest.raises(StopIteration) as end:
        server.send(b"c=biws,r=" + nonce + b",p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    assert end.value.value == Authenticated("user", b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


def final_of(
    first: bytes, bare: bytes, *, nonce: bytes | None = None, header: bytes = b"biws", suffix: bytes = b""
) -> bytes:
    """A last message with the right proof for its content."""
    fields = dict(part.split(b"=", 1) for part in first.split(b","))
    unproved = b"c=" + header + b",r=" + (fields[b"r"] if nonce is None else nonce) + suffix
    salted = derived.salted_password("sha256", PASSWORD.encode(), base64.b64decode(fields[b"s"]), int(fields[b"i"]))
    key = derived.client_key("sha256", salted)
    message = b",".join((bare, first, unproved))
    signature = derived.signature("sha256", derived.stored_key("sha256", key), message)
    return unproved + b",p=" + base64.b64encode(derived.exclusive_or(key, signature))


BARE = b"n=ada,r=clientnonce"


@pytest.mark.covers("SEC36")
@pytest.mark.parametrize(
    "changes",
    [
        {"nonce": b"clientnonce"},
        {"nonce": b"another"},
        {"header": b"eSws"},
        {"header": b"biw="},
    ],
    ids=["ours alone", "another", "another header", "no header"],
)
def test_the_last_message_must_bear_the_whole_nonce_and_the_header(users: Users, changes: dict[str, bytes]) -> None:
    """The proof is right each time: it is for the content of the message."""
    server = scram("SCRAM-SHA-256", users, lambda: "servernonce")
    next(server)
    first = server.send(b"n,," + BARE)
    with pytest.raises(AuthenticationRefused):
        server.send(final_of(first, BARE, **changes))
    right = scram("SCRAM-SHA-256", users, lambda: "servernonce")
    next(right)
    first = right.send(b"n,," + BARE)
    with pytest.raises(StopIteration):
        right.send(final_of(first, BARE, suffix=b",later=extension"))


def test_the_name_to_act_for_must_be_the_users_own(users: Users) -> None:
    server = scram("SCRAM-SHA-256", users)
    next(server)
    first = server.send(b"n,a=ada," + BARE)
    with pytest.raises(StopIteration):
        server.send(final_of(first, BARE, header=base64.b64encode(b"n,a=ada,")))
    assert refused(scram("SCRAM-SHA-256", users), b"n,a=bob," + BARE) is None
    message = "Authentication failed: Invalid username or password"
    assert refused(plain(users), b"bob\0ada\0" + PASSWORD.encode()) == message


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"n,,",
        b"y,,n=ada,r=x",
        b"p=tls-unique,,n=ada,r=x",
        b"n,,n=,r=x",
        b"n,,n=a=b,r=x",
        b"n,,n=\xc3\xa9,r=x",
        b"n,,n=ada,r=",
    ],
)
@pytest.mark.parametrize("mechanism", SCRAMS)
def test_first_messages_that_are_none_of_scram(users: Users, mechanism: str, first: bytes) -> None:
    assert refused(scram(mechanism, users), first) is None


@pytest.mark.parametrize(
    "final", [b"", b"c=biws", b"c=biws,r=%s", b"c=biws,r=%s,p=", b"c=biws,r=%s,p=AAAA", b"c=biws,r=%s,p=A==="]
)
@pytest.mark.parametrize("mechanism", SCRAMS)
def test_last_messages_that_prove_nothing(users: Users, mechanism: str, final: bytes) -> None:
    server = scram(mechanism, users, lambda: "server")
    next(server)
    server.send(b"n,," + BARE)
    with pytest.raises(AuthenticationRefused):
        server.send(final.replace(b"%s", b"clientnonceserver"))


@pytest.mark.covers("SEC37")
@pytest.mark.parametrize("mechanism", SCRAMS)
def test_the_first_response_does_not_reveal_whether_a_user_exists(users: Users, mechanism: str) -> None:
    def responses(name: bytes) -> set[bytes]:
        found = set()
        for _ in range(3):
            server = scram(mechanism, users, lambda: "server")
            next(server)
            found.add(server.send(b"n,,n=" + name + b",r=client"))
        return found

    known, unknown, other = responses(b"ada"), responses(b"eve"), responses(b"eva")
    assert len(known) == len(unknown) == len(other) == 1, "the same salt each time"
    (one,), (two,), (three,) = known, unknown, other
    assert len({one, two, three}) == 3
    assert len(one) == len(two) == len(three)
    assert {response.rpartition(b",")[2] for response in (one, two, three)} == {b"i=4096"}


@pytest.mark.covers("SEC37")
@pytest.mark.parametrize("mechanism", [*SCRAMS, "PLAIN"])
def test_the_same_is_computed_for_unknown_users(users: Users, mechanism: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Expensive steps are counted: derivations, signatures, and comparisons in constant time."""
    calls: list[str] = []

    def counted(module: ModuleType, name: str) -> None:
        real = getattr(module, name)

        def count(*arguments: object) -> object:
            calls.append(name)
            return real(*arguments)

        monkeypatch.setattr(module, name, count)

    counted(hmac, "digest")
    counted(hmac, "compare_digest")
    counted(hashlib, "pbkdf2_hmac")

    def work(user: str, password: str) -> list[str]:
        client, server = messages_of(mechanism, user, password), start(mechanism, users, lambda: NOW_MS)
        message = next(client)
        calls.clear()
        mine: list[str] = []
        while True:
            try:
                response = server.send(message)
            except AuthenticationRefused:
                return [*mine, *calls]
            mine += calls
            message = client.send(response)
            calls.clear()

    assert work("ada", "wrong") == work("eve", PASSWORD) != []
    assert "compare_digest" in work("eve", PASSWORD)


def test_no_proof_fits_the_keys_of_an_unknown_user(users: Users, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if a proof fitted by chance."""
    monkeypatch.setattr(derived, "proves", lambda *_: True)
    server = scram("SCRAM-SHA-256", users, lambda: "server")
    next(server)
    server.send(b"n,,n=eve,r=client")
    with pytest.raises(AuthenticationRefused):
        server.send(b"c=biws,r=clientserver,p=" + base64.b64encode(bytes(32)))


@pytest.mark.parametrize(
    "message", [b"", b"ada", b"\0ada", b"\0\0", b"\0ada\0", b"\0\0pw", b"\0\xff\0pw", b"\0ada\0p\0w", b"\0eve\0pw"]
)
def test_messages_of_plain_that_are_refused(users: Users, message: bytes) -> None:
    assert refused(plain(users), message) == "Authentication failed: Invalid username or password"


def bearer_message(written: str) -> bytes:
    return f"n,,\x01auth=Bearer {written}\x01\x01".encode()


def test_an_unsigned_token() -> None:
    server = bearer(lambda: NOW_MS)
    next(server)
    with pytest.raises(StopIteration) as end:
        server.send(b"n,a=ada,\x01auth=Bearer " + token("ada", 1001).encode() + b"\x01key=value\x01\x01")
    assert end.value.value == Authenticated("ada", b"", 1_001_000)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,\x01auth=Bearer \x01\x01",
        bearer_message(token("ada", 1001))[:-1],
        bearer_message(token("ada", 1000)),
        bearer_message(token("ada", -1)),
        bearer_message(token("ada", float("nan"))),
        bearer_message(token("ada", 10**400)),
        bearer_message(token("ada", "1001")),
        bearer_message(token("ada", True)),
        bearer_message(token("", 1001)),
        bearer_message(token(5, 1001)),
        bearer_message(token("ada", 1001) + "c2lnbmF0dXJl"),
        bearer_message(token("ada", 1001, {"alg": "HS256"})),
        bearer_message(token("ada", 1001)[:-1]),
        bearer_message("W10.W10."),
        bearer_message("a.b."),
        bearer_message(base64.urlsafe_b64encode(b"[" * 100_000).decode().rstrip("=") + ".e30."),
    ],
)
def test_tokens_that_are_refused(message: bytes) -> None:
    server = bearer(lambda: NOW_MS)
    next(server)
    assert server.send(message) == INVALID_TOKEN
    with pytest.raises(AuthenticationRefused) as raised:
        server.send(b"\x01")
    assert raised.value.client_message == INVALID_TOKEN.decode()


@pytest.mark.parametrize("mechanism", MECHANISMS)
@given(sent=st.lists(st.binary(max_size=200), min_size=3, max_size=3))
def test_odd_messages_are_refused_and_nothing_else(users: Users, mechanism: str, sent: list[bytes]) -> None:
    server = start(mechanism, users, lambda: NOW_MS)

    def send_all() -> None:
        for message in sent:
            server.send(message)

    with pytest.raises(AuthenticationRefused):
        send_all()


def test_a_server_that_does_not_know_the_password_is_refused(users: Users) -> None:
    """The client's half of the bargain, which the embedded broker keeps."""
    client = messages_of("SCRAM-SHA-256", "ada", "another")
    server = start("SCRAM-SHA-256", users, lambda: NOW_MS)
    client.send(server.send(next(client)))
    with pytest.raises(AuthenticationFailed, match="signature"):
        client.send(b"v=" + base64.b64encode(bytes(32)))
