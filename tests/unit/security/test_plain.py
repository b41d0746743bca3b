"""PLAIN: one message, and what it cannot carry."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_producer.common.secret import Secret
from spark_producer.errors import AuthenticationFailed
from spark_producer.protocol import SASL_AUTHENTICATE, SASL_HANDSHAKE, encode_request, messages
from spark_producer.security.plain import plain


@pytest.mark.covers("SEC13")
@pytest.mark.parametrize(
    ("version", "frame"),
    [
        (1, "0000001c 0024 0001 00000002 0003 6c6162 0000000b 00617070006170702d7077"),
        (2, "0000001b 0024 0002 00000002 0003 6c6162 00 0c 00617070006170702d7077 00"),
    ],
)
def test_the_frames_are_those_of_javas_client(version: int, frame: str) -> None:
    """Captured on a real broker: client id `lab`, user `app`, password `app-pw`."""
    body = messages.SaslAuthenticateRequest(next(plain("app", Secret("app-pw"))))
    assert b"".join(encode_request(SASL_AUTHENTICATE, version, 2, "lab", body)) == bytes.fromhex(frame)


@pytest.mark.covers("SEC13")
def test_the_handshake_is_that_of_javas_client() -> None:
    sent = b"".join(encode_request(SASL_HANDSHAKE, 1, 1, "lab", messages.SaslHandshakeRequest("PLAIN")))
    assert sent == bytes.fromhex("00000014 0011 0001 00000001 0003 6c6162 0005 504c41494e")


@pytest.mark.parametrize("answer", [b"", b"anything"])
def test_it_ends_with_the_first_answer(answer: bytes) -> None:
    client = plain("app", Secret("app-pw"))
    next(client)
    with pytest.raises(StopIteration):
        client.send(answer)


UNICODE = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1)


@pytest.mark.covers("SEC15")
@given(UNICODE, UNICODE)
def test_names_and_passwords_go_as_they_are(user: str, password: str) -> None:
    assert next(plain(user, Secret(password))) == b"\0" + user.encode() + b"\0" + password.encode()


@pytest.mark.covers("SEC15")
@pytest.mark.parametrize(
    ("user", "password", "reason"),
    [
        ("", "canary", "needs a user name"),
        ("app", "", "needs a password"),
        ("a\0b", "canary", "user name: it contains the character NUL"),
        ("app", "can\0ary", "password: it contains the character NUL"),
        ("\ud800", "canary", "user name: it is not Unicode"),
        ("app", "canary\udfff", "password: it is not Unicode"),
    ],
)
def test_what_plain_cannot_carry_is_refused_before_anything_is_sent(user: str, password: str, reason: str) -> None:
    with pytest.raises(AuthenticationFailed, match=reason) as refused:
        next(plain(user, Secret(password)))
    assert refused.value.fatal
    assert "can" not in str(refused.value).replace("cannot", "")
    assert refused.value.__context__ is None, "the error of the codec holds the text"
