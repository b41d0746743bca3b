"""The messages of GSSAPI (RFC 4752), with a security context by script."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from spark_producer.errors import AuthenticationFailed
from spark_producer.security.gssapi import gssapi

ALL_LAYERS = bytes((7, 0, 64, 0))


class Context:
    """A context that is complete after some challenges, and protects a message by a prefix."""

    def __init__(self, challenges: int = 1, last: bytes = b"") -> None:
        self.first_message = b"first"
        self.seen: list[bytes] = []
        self._challenges = challenges
        self._last = last

    @property
    def complete(self) -> bool:
        return len(self.seen) >= self._challenges

    def step(self, challenge: bytes) -> bytes:
        self.seen.append(challenge)
        return self._last if self.complete else b"next"

    def unwrap(self, message: bytes) -> bytes:
        assert message.startswith(b"wrapped:")
        return message.removeprefix(b"wrapped:")

    def wrap(self, content: bytes) -> bytes:
        return b"wrapped:" + content


@pytest.mark.parametrize(
    ("context", "challenges", "messages"),
    [
        (Context(), [b"a"], [b"first", b""]),
        (Context(last=b"end"), [b"a"], [b"first", b"end"]),
        (Context(2), [b"a", b"b"], [b"first", b"next", b""]),
        (Context(0), [], [b"first"]),
    ],
)
def test_after_the_context_no_security_layer_is_chosen(
    context: Context, challenges: Sequence[bytes], messages: Sequence[bytes]
) -> None:
    run = gssapi(context)
    found = [next(run), *(run.send(challenge) for challenge in challenges)]
    assert found == messages
    assert context.seen == challenges
    assert run.send(b"wrapped:" + ALL_LAYERS) == b"wrapped:\x01\x00\x00\x00"
    with pytest.raises(StopIteration):
        run.send(b"")


@pytest.mark.parametrize("offer", [b"", b"\x01\x00\x00", bytes((6, 0, 64, 0)), bytes((1, 0, 0, 0, 0))])
def test_a_peer_without_plain_connections_is_refused(offer: bytes) -> None:
    run = gssapi(Context())
    next(run)
    run.send(b"a")
    with pytest.raises(AuthenticationFailed, match="without a security layer") as refused:
        run.send(b"wrapped:" + offer)
    assert refused.value.fatal
