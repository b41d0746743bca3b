"""Secrets that were sent are hidden in what peers answer, in every coding, whole and cut."""

from __future__ import annotations

import base64
import unicodedata
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from spark_producer.common import redaction
from spark_producer.common.escape import for_log
from spark_producer.common.redaction import MAX_SECRETS, MAX_TEXT, SentSecrets, hide, remember
from spark_producer.common.secret import Secret
from tests.support.secret_codings import CODINGS, PASSWORD, USER, of_base32, of_base64, pieces, shows


@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize("secret", [PASSWORD, "CANARYecho-5", "s3cret", "correct horse battery staple", "日本語のパス"])
def test_a_secret_is_hidden_in_every_coding(coding: str, secret: str) -> None:
    remember(Secret(secret))
    encoded = CODINGS[coding](secret)
    for shown in (hide(f"password '{encoded}' is wrong"), for_log(f"password '{encoded}' is wrong".encode())):
        assert "***" in shown
        assert not shows(shown, encoded), shown
        assert shown.startswith("password '")
        assert shown.endswith("' is wrong")


@pytest.mark.parametrize(
    "coding", ["plain", "base64", "base64 of Basic", "base32", "percent of all", "hex", "JSON, each character"]
)
def test_a_secret_is_hidden_wherever_a_text_is_cut_through_it(coding: str) -> None:
    remember(Secret("CANARYecho-5"))
    encoded = CODINGS[coding]("CANARYecho-5")
    few = len(encoded) * 3 // 12 + 3
    """The replacement of three bytes, which may remain."""
    for at in range(few + 6, len(encoded)):
        for cut in (
            f"is wrong: {encoded[:at]}",
            f"is wrong: '{encoded[:at]}…' it is",
            f"is wrong: {encoded[:at]}... it is",
        ):
            assert not pieces(encoded, few + 5) & pieces(hide(cut), few + 5), cut
    for at in range(1, len(encoded) - few - 6):
        assert not pieces(encoded, few + 5) & pieces(hide(f"{encoded[at:]} is wrong"), few + 5)


@pytest.mark.parametrize("before", range(8))
def test_base32_is_hidden_at_every_alignment(before: int) -> None:
    remember(Secret("CANARYecho-5"))
    for after in (b"", b"rest of it"):
        encoded = of_base32(b"abcdefgh"[:before] + b"CANARYecho-5" + after)
        for part in (encoded, encoded[1:], encoded.rstrip("=")[:-1]):
            assert hide(f"it is {part}.") == "it is ***.", part


def test_what_is_cut_for_a_message_is_hidden_before() -> None:
    remember(Secret("CANARYecho-5"))
    for before in range(270, 301):
        shown = for_log("." + "x" * before + "CANARYecho-5" + "y" * 5000)
        assert not pieces("CANARYecho-5", 3) & pieces(shown, 3)
        assert len(shown) <= 300
    shown = for_log("CANARYecho-5" * 1000 + "after it")
    assert shown == "***…"


@given(st.text(min_size=4, max_size=40), st.binary(max_size=5), st.binary(max_size=5))
@example("aaaa", b"", b"")
def test_base64_around_any_secret_is_hidden_as_a_whole(secret: str, before: bytes, after: bytes) -> None:
    redaction._sent_secrets = SentSecrets()
    remember(Secret(secret))
    text = secret.encode("utf-8", "surrogatepass")
    assert hide("it is " + of_base64(before + text + after)) == "it is ***"


@given(st.text(max_size=300) | st.text("%\\u0041&#;=+/-.… abAB\"'", max_size=300), st.text(max_size=20))
def test_any_text_is_taken_and_does_not_hold_the_secret_afterwards(text: str, secret: str) -> None:
    redaction._sent_secrets = SentSecrets()
    remember(Secret(secret))
    shown = for_log(text + secret)
    assert shown.isprintable()
    if len(secret) >= 4:
        assert secret not in hide(text + secret + text)


ODD: dict[str, Callable[[str], str]] = {
    "backwards": lambda secret: secret[::-1],
    "base64 backwards": lambda secret: of_base64(secret[::-1].encode()),
    "with spaces": " ".join,
    "with hyphens": "-".join,
    "with NUL": "\0".join,
    "with escape sequences": "\x1b[1m".join,
    "with invisible characters": "\u200b".join,
    "in two lines": lambda secret: f"{secret[:6]}\n{secret[6:]}",
    "in two texts": lambda secret: f'{secret[:6]}" + "{secret[6:]}',
    "base64 of UTF-16": lambda secret: of_base64(unicodedata.normalize("NFD", secret).encode("utf-16-le")),
    "base64 in lines": lambda secret: base64.encodebytes(
        f"user=alice&{'x' * 40}&password={secret}&x=1".encode()
    ).decode(),
    "quoted-printable": lambda secret: "".join(f"={byte:02X}" for byte in secret.encode()),
    "numbers": lambda secret: str(list(secret.encode())),
    "numbers of Java": lambda secret: str([byte - 256 if byte > 127 else byte for byte in secret.encode()]),
    "numbers of Go": lambda secret: str(list(secret.encode())).replace(",", ""),
    "hexadecimal numbers": lambda secret: ", ".join(f"0x{byte:02x}" for byte in secret.encode()),
    "UTF-8 as Latin-1": lambda secret: secret.encode().decode("latin-1"),
    "decomposed": lambda secret: unicodedata.normalize("NFD", secret),
    "upper case": str.upper,
}


@pytest.mark.parametrize("coding", ODD)
@pytest.mark.parametrize("secret", ["CANARYecho-5", "correct horse battery staple", "Grüße_aus_der_Großstadt"])
def test_a_secret_is_hidden_however_it_is_twisted(coding: str, secret: str) -> None:
    remember(Secret(secret))
    encoded = ODD[coding](secret)
    shown = hide(f"password '{encoded}' is wrong")
    assert "***" in shown
    assert not pieces(encoded[-18:].strip(), 8) & pieces(shown, 8), shown


def test_a_text_without_the_secret_stays_as_it_is() -> None:
    for secret in ("app-pw", "CANARYecho-5", "x", "pw", Secret("eyJhbGciOiJSUzI1NiJ9.e30.c2ln").reveal()):
        remember(Secret(secret))
    for text in (
        "Authentication failed: Invalid username or password",
        "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-512",
        '{"status":"invalid_token"}',
        "Subject 'orders-value' not found., code 40401: %20 \\n … &amp; 00ff00ff upward",
    ):
        assert hide(text) == text


@pytest.mark.parametrize("secret", ["a", "pw", "pw1"])
def test_a_text_with_a_short_secret_is_hidden_whole(secret: str) -> None:
    remember(Secret(secret))
    for held in (f"password '{secret}' is wrong", f"it was {of_base64(f'{USER}:{secret}'.encode())}", secret):
        assert hide(held) == "***", held
    assert hide(f"up{secret}ard") == f"up{secret}ard"


def test_an_empty_secret_hides_nothing() -> None:
    remember(Secret(""))
    assert hide("x") == "x"


def test_several_secrets_are_hidden_and_the_oldest_are_forgotten() -> None:
    secrets = [f"{index:03}-secret-{index:03}" for index in range(MAX_SECRETS + 1)]
    for secret in secrets:
        remember(Secret(secret))
    assert hide(f"{secrets[1]} and {secrets[-1]}.") == "*** and ***."
    assert [each.exact for each in redaction._sent_secrets.search_terms()] == [
        secret.encode() for secret in secrets[1:]
    ]


def test_a_text_that_can_be_decoded_without_end_is_not_shown() -> None:
    remember(Secret("CANARYecho-5"))
    nested = "A" * MAX_TEXT
    for _ in range(3):
        nested = of_base64(("%2B" + nested + "&amp;\\u0041").encode())[:MAX_TEXT]
    assert for_log(nested + "CANARYecho-5").find("CANARY") < 0


def test_the_secrets_are_in_no_representation() -> None:
    remember(Secret("CANARYecho-5"))
    assert "CANARY" not in repr(vars(redaction))
