"""SCRAM's client: the vectors of RFC 7677 and of a real broker, odd names and passwords, and servers that lie."""

from __future__ import annotations

import base64
import hashlib
import os
import random
import traceback
from collections.abc import Generator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_producer.common.secret import Secret
from spark_producer.errors import AuthenticationFailed
from spark_producer.security import scram as module
from spark_producer.security.scram import (
    HASHES,
    Keys,
    client_key,
    exclusive_or,
    fresh_nonce,
    keys_of,
    proves,
    salted_password,
    scram,
    signature,
    strict_base64,
    unescaped_name,
)
from tests.support.campaigns import sample_and_campaign

NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
GOLDEN_FIRST = b"r=pyproducer.golden18arw13exrzrq17hj9gdqoswi1,s=Ymp5cXU3dWV2NGpybHUxdXp2Y3I1MnM0MQ==,i=8192"
GOLDEN_PROOF = b"nluqhlPumGQt334d6aWblTWnDbhgi8ved/m2k5xy9E0l3MrVbrfymZZljeZFMdssKclQPHyxwSHY2YlP6a4UPQ=="
GOLDEN_FINAL = b"v=0hcEtHYIOjoTTfd4DDIgiYLrr5tlcS43Hft01/+Ub2emSzLVqyKwTTrL+ddGh9Lsc3adXiwe969uPKhh6SxTSQ=="


def login(
    mechanism: str = "SCRAM-SHA-256",
    user: str = "user",
    password: str = "pencil",
    nonce: str = NONCE,
    token: bool = False,
) -> Generator[bytes, bytes, None]:
    return scram(mechanism, user, Secret(password), token_auth=token, nonce=lambda: nonce)


def serve(client: Generator[bytes, bytes, None], mechanism: str, password: str, iterations: int = 4096) -> bool:
    """Whether the client proves the password to a server that knows it as raw UTF-8; then the login ends without an error."""
    hash_name = HASHES[mechanism]
    salt = os.urandom(16)
    first = next(client)
    bare = first.removeprefix(b"n,,")
    nonce = bare.split(b",")[1] + b"server"
    challenge = b"%s,s=%s,i=%d" % (nonce, base64.b64encode(salt), iterations)
    final = client.send(challenge)
    without_proof, _, proof = final.rpartition(b",p=")
    assert without_proof == b"c=biws," + nonce
    keys = keys_of(hash_name, password.encode(), salt, iterations)
    auth_message = b",".join((bare, challenge, without_proof))
    if not proves(hash_name, keys, base64.b64decode(proof), auth_message):
        return False
    with pytest.raises(StopIteration):
        client.send(b"v=" + base64.b64encode(signature(hash_name, keys.server_key, auth_message)))
    return True


@pytest.mark.covers("SEC14")
def test_the_vector_of_rfc_7677() -> None:
    client = login()
    assert next(client) == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert client.send(SERVER_FIRST) == CLIENT_FINAL
    with pytest.raises(StopIteration):
        client.send(SERVER_FINAL)


@pytest.mark.covers("SEC14")
def test_a_login_of_kafka_4_3_by_sha_512() -> None:
    client = login("SCRAM-SHA-512", "app", "app-pw", "pyproducer.golden")
    assert next(client) == b"n,,n=app,r=pyproducer.golden"
    nonce = GOLDEN_FIRST.split(b",")[0]
    assert client.send(GOLDEN_FIRST) == b"c=biws," + nonce + b",p=" + GOLDEN_PROOF
    with pytest.raises(StopIteration):
        client.send(GOLDEN_FINAL)


@pytest.mark.covers("SEC14")
def test_the_derivations_are_those_of_rfc_5802() -> None:
    """RFC 5802 gives its vector for SHA-1, which Kafka does not have, but the functions take any hash."""
    salt = base64.b64decode("QSXCR+Q6sek8bf92")
    salted = salted_password("sha1", b"pencil", salt, 4096)
    nonce = b"r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j"
    message = b"n=user,r=fyko+d2lbbFgONRv9qkxdawL," + nonce + b",s=QSXCR+Q6sek8bf92,i=4096,c=biws," + nonce
    keys = keys_of("sha1", b"pencil", salt, 4096)
    proof = exclusive_or(client_key("sha1", salted), signature("sha1", keys.stored_key, message))
    assert base64.b64encode(proof) == b"v0X8v3Bz2T0CJGbJQyF0X+HI4Ts="
    assert base64.b64encode(signature("sha1", keys.server_key, message)) == b"rmF9pqV8S7suAoZWja4dJRkFsKQ="
    assert proves("sha1", keys, proof, message)


@pytest.mark.covers("SEC14")
def test_another_proof_proves_nothing() -> None:
    keys = Keys(hashlib.sha256(b"x" * 32).digest(), b"y" * 32)
    proof = exclusive_or(b"x" * 32, signature("sha256", keys.stored_key, b"message"))
    assert proves("sha256", keys, proof, b"message")
    assert not proves("sha256", keys, proof, b"another message")
    assert not proves("sha256", keys, proof[:-1], b"message")
    assert not proves("sha256", keys, b"", b"message")


@pytest.mark.covers("SEC15")
@pytest.mark.parametrize("mechanism", HASHES)
@pytest.mark.parametrize(
    "password", ["Ⅸ", "I\u00adX", "a\u00a0b", "nai\u0308ve", "naïve", "pass,word=1", " ", "\u200b", "🔑", "ß" * 200]
)
def test_passwords_go_as_they_are_without_saslprep(mechanism: str, password: str) -> None:
    assert serve(login(mechanism, password=password), mechanism, password)


@pytest.mark.covers("SEC15")
def test_a_prepared_password_is_another_password() -> None:
    assert not serve(login(password="Ⅸ"), "SCRAM-SHA-256", "IX")


@pytest.mark.covers("SEC15")
@pytest.mark.parametrize(
    ("user", "written"),
    [
        ("a,b=c", b"a=2Cb=3Dc"),
        ("=2C", b"=3D2C"),
        ("CN=a b", b"CN=3Da b"),
        ("\x01\x7f", b"\x01\x7f"),
        ("a'\"\\", b"a'\"\\"),
    ],
)
def test_odd_user_names_are_escaped(user: str, written: bytes) -> None:
    assert next(login(user=user)) == b"n,,n=" + written + b",r=" + NONCE.encode()
    assert unescaped_name(written) == user


@pytest.mark.covers("SEC15")
@pytest.mark.parametrize("written", [b"", b"a,b", b"a=b", b"a=2c", b"=", b"a=3", b"\x00", b"\xc3\xbc"])
def test_a_name_with_another_escape_is_invalid(written: bytes) -> None:
    assert unescaped_name(written) is None


@pytest.mark.covers("SEC15")
@pytest.mark.parametrize("user", ["müller", "a\0b", "", "\ud800", "a\u200b", "名"])
def test_user_names_that_never_log_in_are_refused_before_anything_is_sent(user: str) -> None:
    with pytest.raises(AuthenticationFailed, match=r"ASCII|empty") as refused:
        next(login(user=user))
    assert refused.value.fatal
    assert str(refused.value).isprintable()


@pytest.mark.covers("SEC16")
@pytest.mark.parametrize("mechanism", HASHES)
def test_a_delegation_token_is_said_to_be_one(mechanism: str) -> None:
    client = login(mechanism, "TOKENID", "aG1hYw==", token=True)
    assert next(client) == b"n,,n=TOKENID,r=" + NONCE.encode() + b",tokenauth=true"
    serve_token = login(mechanism, "TOKENID", "aG1hYw==", token=True)
    first = next(serve_token)
    challenge = b"r=" + NONCE.encode() + b"x,s=c2FsdA==,i=4096"
    keys = keys_of(HASHES[mechanism], b"aG1hYw==", b"salt", 4096)
    final = serve_token.send(challenge)
    without_proof, _, proof = final.rpartition(b",p=")
    auth_message = b",".join((first.removeprefix(b"n,,"), challenge, without_proof))
    assert proves(HASHES[mechanism], keys, base64.b64decode(proof), auth_message), (
        "the extension is part of what is signed"
    )


def first_messages(**fields: bytes) -> bytes:
    """The first message of RFC 7677's server with some fields replaced."""
    reported = {"r": NONCE.encode() + b"server", "s": b"W22ZaJ0SNY7soEsUEjb6gQ==", "i": b"4096"} | fields
    return b",".join(name.encode() + b"=" + value for name, value in reported.items())


@pytest.mark.covers("SEC31")
@pytest.mark.parametrize(
    ("challenge", "reason"),
    [
        (first_messages(i=b"1000000000"), "1000000000 iterations"),
        (first_messages(i=b"1000001"), "1000001 iterations"),
        (first_messages(i=b"4095"), "4095 iterations"),
        (first_messages(i=b"1"), "1 iterations"),
        (first_messages(i=b"0"), "not a SCRAM message"),
        (first_messages(i=b"-4096"), "not a SCRAM message"),
        (first_messages(i=b"04096"), "not a SCRAM message"),
        (first_messages(i=b"9" * 5000), "not a SCRAM message"),
        (first_messages(i="٤٠٩٦".encode()), "not a SCRAM message"),
        (first_messages(r=NONCE.encode()), "does not extend"),
        (first_messages(r=NONCE[:-1].encode() + b"x"), "does not extend"),
        (first_messages(r=b"server" + NONCE.encode()), "does not extend"),
        (first_messages(r=b""), "not a SCRAM message"),
        (first_messages(r=NONCE.encode() + b" "), "not a SCRAM message"),
        (first_messages(s=b""), "not a SCRAM message"),
        (first_messages(s=b"W22ZaJ0SNY7soEsUEjb6gQ"), "not a SCRAM message"),
        (first_messages(s=b"W22ZaJ0SNY7soEsUEjb6gR=="), "not a SCRAM message"),
        (first_messages(s=b"W22Z aJ0SNY7soEsUEjb6gQ="), "not a SCRAM message"),
        (b"m=must," + first_messages(), "not a SCRAM message"),
        (b"s=c2FsdA==,r=" + NONCE.encode() + b"x,i=4096", "not a SCRAM message"),
        (b"", "not a SCRAM message"),
        (SERVER_FINAL, "not a SCRAM message"),
        (b"e=unknown-user\n\x1b[31m", r"unknown-user\\n\\x1b\[31m"),
    ],
)
def test_a_first_message_that_no_broker_sends_is_refused_before_anything_is_computed(
    challenge: bytes, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed: list[object] = []
    monkeypatch.setattr(module, "salted_password", lambda *arguments: computed.append(arguments))
    client = login()
    next(client)
    with pytest.raises(AuthenticationFailed, match=reason) as refused:
        client.send(challenge)
    assert refused.value.fatal
    assert not computed


@pytest.mark.covers("SEC31")
def test_an_allowed_number_of_iterations_is_computed() -> None:
    client = login()
    next(client)
    assert client.send(first_messages(i=b"4096") + b",x=an extension").startswith(b"c=biws,r=")


@pytest.mark.covers("SEC31")
@pytest.mark.parametrize(
    ("final", "reason"),
    [
        (b"", "without its signature"),
        (b"v=", "without its signature"),
        (b"ok", "without its signature"),
        (b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G5=", "without its signature"),
        (b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G8=", "signature is wrong"),
        (b"v=AAAA", "signature is wrong"),
        (b"v=" + base64.b64encode(bytes(32)), "signature is wrong"),
        (b"e=invalid-proof", "invalid-proof"),
        (b"e=", "rejected the login"),
        (SERVER_FIRST, "without its signature"),
    ],
)
def test_success_without_the_servers_signature_is_failure(final: bytes, reason: str) -> None:
    client = login()
    next(client)
    client.send(SERVER_FIRST)
    with pytest.raises(AuthenticationFailed, match=reason) as refused:
        client.send(final)
    assert refused.value.fatal


@pytest.mark.covers("SEC31")
def test_success_right_after_the_first_message_is_failure() -> None:
    client = login()
    next(client)
    with pytest.raises(AuthenticationFailed):
        client.send(b"")


def test_extensions_after_the_signature_are_ignored() -> None:
    client = login()
    next(client)
    client.send(SERVER_FIRST)
    with pytest.raises(StopIteration):
        client.send(SERVER_FINAL + b",x=anything")


@pytest.mark.covers("SEC42")
@pytest.mark.parametrize("answers", [[], [b""], [SERVER_FIRST, b"v=AAAA"]])
def test_no_frame_of_a_failed_login_holds_the_password_or_a_key(answers: list[bytes]) -> None:
    password = "canary-password"
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    salted = salted_password("sha256", password.encode(), salt, 4096)
    keys = keys_of("sha256", password.encode(), salt, 4096)
    client = login(password=password, user="user" if answers else "müller")
    with pytest.raises(AuthenticationFailed) as refused:
        say(client, answers)
    frames = [frame for frame, _ in traceback.walk_tb(refused.tb) if frame.f_code.co_filename == module.__file__]
    assert "scram" in [frame.f_code.co_name for frame in frames]
    shown = repr(refused.value) + "".join(repr(frame.f_locals) for frame in frames)
    for secret in (password.encode(), salted, client_key("sha256", salted), keys.stored_key, keys.server_key):
        assert repr(secret)[2:-1] not in shown


def test_nonces_are_long_printable_without_commas_and_never_the_same() -> None:
    nonces = {fresh_nonce() for _ in range(1000)}
    assert len(nonces) == 1000
    assert all(len(nonce) == 32 and nonce.isascii() and nonce.isprintable() and "," not in nonce for nonce in nonces)


@given(st.binary(max_size=64))
def test_strict_base64_reads_what_is_written_and_nothing_else(content: bytes) -> None:
    written = base64.b64encode(content)
    assert strict_base64(written) == (content or None)
    read = strict_base64(content)
    assert read is None or base64.b64encode(read) == content


def is_clear(refused: AuthenticationFailed) -> bool:
    return refused.fatal and len(str(refused)) < 1000 and str(refused).isprintable()


def say(client: Generator[bytes, bytes, None], messages: list[bytes]) -> None:
    """A server that says `messages`."""
    next(client)
    for message in messages:
        client.send(message)


def outcome(client: Generator[bytes, bytes, None], messages: list[bytes]) -> AuthenticationFailed:
    """Return the client's exception when a server says `messages`; a login that succeeds fails the test."""
    try:
        say(client, messages)
    except AuthenticationFailed as refused:
        return refused
    except StopIteration:
        raise AssertionError(f"{messages!r} was taken for a server that knows the password") from None
    raise AssertionError(f"the login still waits after {messages!r}")


@pytest.mark.covers("SEC31")
@given(st.lists(st.binary() | st.just(SERVER_FIRST), min_size=3, max_size=3))
def test_whatever_a_server_says_a_login_ends_with_our_error(messages: list[bytes]) -> None:
    assert is_clear(outcome(login(), messages))


@pytest.mark.covers("SEC31")
@pytest.mark.parametrize("inputs", sample_and_campaign([2000, 500_000]))
def test_no_mutation_of_good_messages_logs_in(inputs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the million odd messages of the campaign; the other half are OAUTHBEARER's."""
    monkeypatch.setattr(module, "salted_password", lambda *_: bytes(32))  # the cost of iterations is not under test
    seeded = random.Random(inputs)
    for _ in range(inputs // 2):
        messages = [mutated(SERVER_FIRST, seeded), mutated(SERVER_FINAL, seeded), b""]
        assert is_clear(outcome(login(), messages))


def mutated(message: bytes, seeded: random.Random) -> bytes:
    """`message` with a few bytes changed, cut out, put in, or doubled."""
    changed = bytearray(message)
    for _ in range(seeded.randint(0, 4)):
        at = seeded.randrange(len(changed) + 1)
        kind = seeded.randrange(4)
        if kind == 0:
            changed[at : at + 1] = seeded.randbytes(1)
        elif kind == 1:
            del changed[at : at + seeded.randint(1, 8)]
        elif kind == 2:
            changed[at:at] = seeded.choice([b",", b"=", b"i=", b"r=", b"v=", b"e=", b"\0", b"9", b"\xff"])
        else:
            changed[at:at] = changed[at : at + seeded.randint(1, 8)]
    return bytes(changed)
