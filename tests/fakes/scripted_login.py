"""A login whose every message a test writes, and which notes what the broker says.

Owns: the order of messages. Must not know: any real mechanism.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field

from spark_producer.errors import AuthenticationFailed


@dataclass
class ScriptedLogin:
    """Sends `messages` in turn. With `proof` the last answer must be it, as the server's signature of SCRAM must."""

    messages: tuple[bytes, ...] = (b"\0app\0app-pw",)
    mechanism: str = "PLAIN"
    user: str = "app"
    given_by: str = "kafka.sasl.username and kafka.sasl.password"
    proof: bytes | None = None
    received: list[bytes] = field(default_factory=list)
    started: int = 0

    def start(self) -> Generator[bytes, bytes, None]:
        self.started += 1
        for message in self.messages:
            self.received.append((yield message))
        if self.proof is not None and self.received[-1] != self.proof:
            raise AuthenticationFailed("the broker has not proved that it knows the password", fatal=True)
