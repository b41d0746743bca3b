"""OAUTHBEARER's client: its one message, its extensions, and what it makes of refusals."""

from __future__ import annotations

import json
import random
import traceback
from collections.abc import Generator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_producer.common.secret import Secret
from spark_producer.errors import AuthenticationFailed
from spark_producer.security import oauthbearer as module
from spark_producer.security.oauthbearer import failure_reason, oauthbearer
from tests.support.campaigns import sample_and_campaign
from tests.unit.security.test_scram import mutated

CANARY = "canary.of~this-test=="
INVALID = b'{"status":"invalid_token"}'


def begun(*extensions: tuple[str, str], token: str = CANARY) -> tuple[Generator[bytes, bytes, None], bytes]:
    client = oauthbearer(Secret(token), extensions)
    return client, next(client)


@pytest.mark.covers("SEC13")
def test_the_first_message_is_that_of_rfc_7628() -> None:
    _, message = begun(
        ("host", "server.example.com"), ("port", "143"), token="vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg=="
    )
    assert message == (
        b"n,,\x01auth=Bearer vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg==\x01host=server.example.com\x01port=143\x01\x01"
    )


@pytest.mark.covers("SEC13")
def test_extensions_of_confluent_cloud_are_sent() -> None:
    _, message = begun(("logicalCluster", "lkc-abc"), ("identityPoolId", "pool-x"))
    assert message.endswith(b"\x01logicalCluster=lkc-abc\x01identityPoolId=pool-x\x01\x01")


def test_an_empty_answer_is_success() -> None:
    client, _ = begun()
    with pytest.raises(StopIteration):
        client.send(b"")


@pytest.mark.covers("SEC19")
@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (INVALID, "invalid_token"),
        (b'{"status":"insufficient_scope","scope":"produce"}', "insufficient_scope (it requires the scope 'produce')"),
        (b'{"status":"a\\n\\u001b[31m"}', r"a\n\x1b[31m"),
        (b'{"status":7}', '{"status":7}'),
        (b"no json\n", r"no json\n"),
        (b"[1]", "[1]"),
        (b'{"status":"' + b"x" * 1000 + b'"}', "x" * 299 + "…"),
        (b"\xff", r"\xff"),
        (b"[" * 100_000, "[" * 299 + "…"),
    ],
)
def test_a_refusal_is_answered_by_one_byte_and_reported(answer: bytes, reason: str) -> None:
    client, _ = begun()
    assert client.send(answer) == b"\x01"
    with pytest.raises(AuthenticationFailed) as refused:
        client.send(b"")
    assert refused.value.fatal
    assert str(refused.value) == f"the broker rejected the token: {reason}"
    assert failure_reason(answer) == reason


@pytest.mark.covers("SEC19")
def test_the_error_that_follows_passes_through() -> None:
    client, _ = begun()
    client.send(INVALID)
    error = AuthenticationFailed("SASL_AUTHENTICATION_FAILED (58)", fatal=True)
    with pytest.raises(AuthenticationFailed) as refused:
        client.throw(error)
    assert refused.value is error


@pytest.mark.covers("SEC19")
@pytest.mark.parametrize("token", ["", "a b", "a\x01auth=Bearer x", "a\n", "=", "ä", "a=b", "tok,en", "\ud800"])
def test_a_token_that_would_add_to_the_message_is_refused(token: str) -> None:
    with pytest.raises(AuthenticationFailed, match="cannot send") as refused:
        begun(token=token)
    assert refused.value.fatal
    assert not token or token not in str(refused.value)


@pytest.mark.covers("SEC19")
@pytest.mark.parametrize(
    ("extensions", "reason"),
    [
        ([("auth", "x")], "auth"),
        ([("a-b", "x")], "letters"),
        ([("", "x")], "letters"),
        ([("ä", "x")], "letters"),
        ([("a\x01b", "x")], "letters"),
        ([("a", "")], "empty"),
        ([("a", "x\x01auth=Bearer y")], "printable"),
        ([("a", "ü")], "printable"),
        ([("a", "\x7f")], "printable"),
        ([("a", "x"), ("b", "y"), ("a", "x")], "twice"),
    ],
)
def test_extensions_that_kafka_does_not_take_are_refused(extensions: list[tuple[str, str]], reason: str) -> None:
    with pytest.raises(AuthenticationFailed, match=reason) as refused:
        begun(*extensions)
    assert str(refused.value).isprintable()


@pytest.mark.covers("SEC42")
def test_no_frame_of_a_refused_login_holds_the_token() -> None:
    client, _ = begun()
    client.send(INVALID)
    with pytest.raises(AuthenticationFailed) as refused:
        client.send(b"")
    frames = [frame for frame, _ in traceback.walk_tb(refused.tb) if frame.f_code.co_filename == module.__file__]
    assert frames
    assert CANARY not in repr(refused.value) + "".join(repr(frame.f_locals) for frame in frames)


def refusal_after(answer: bytes, then: bytes) -> AuthenticationFailed:
    """Return the error of a login after these two responses of a broker, of which the first is not empty."""
    client, _ = begun()
    assert client.send(answer) == b"\x01"
    with pytest.raises(AuthenticationFailed) as refused:
        client.send(then)
    return refused.value


def is_clear(refused: AuthenticationFailed) -> bool:
    return refused.fatal and len(str(refused)) < 1000 and str(refused).isprintable()


@pytest.mark.covers("SEC31")
@given(
    st.binary(min_size=1) | st.from_type(dict[str, str | int]).map(lambda said: json.dumps(said).encode()), st.binary()
)
def test_whatever_a_broker_says_is_a_refusal(answer: bytes, then: bytes) -> None:
    assert is_clear(refusal_after(answer, then))


@pytest.mark.covers("SEC31")
@pytest.mark.parametrize("inputs", sample_and_campaign([2000, 500_000]))
def test_no_mutation_of_a_rejection_logs_in(inputs: int) -> None:
    """Half of the million odd messages of the campaign; the other half are SCRAM's."""
    seeded = random.Random(inputs)
    for _ in range(inputs):
        answer = mutated(b'{"status":"invalid_token","scope":"a"}', seeded) or b"x"
        assert is_clear(refusal_after(answer, b""))
