"""The login over a connection: SaslHandshake, then SaslAuthenticate until the mechanism is satisfied (KIP-43, KIP-152, KIP-368).

One message is sent at a time, so that a mechanism that the broker does not support never exposes the password. The
mechanism makes the messages, and decides whether the broker is authenticated. Only connections that log in import this module.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import suppress

from spark_producer.common.error_codes import Action, Code
from spark_producer.common.escape import for_log
from spark_producer.errors import AuthenticationFailed
from spark_producer.protocol.apis import SASL_AUTHENTICATE, SASL_HANDSHAKE, AnyApi
from spark_producer.protocol.codec import decode_response
from spark_producer.protocol.credentials import SaslCredentials
from spark_producer.protocol.messages import SaslAuthenticateRequest, SaslHandshakeRequest, SaslHandshakeResponse
from spark_producer.protocol.negotiation import SetupRequest


class SaslDialog:
    """One login: send `first`, pass each response to `received`, and send its result, until that is None.

    Messages are requests, or for brokers before 1.0 bare tokens, which have only their size before them.
    """

    def __init__(
        self, credentials: SaslCredentials, version_of: Callable[[AnyApi], int], *, speaks_authenticate: bool
    ) -> None:
        """`version_of` returns the newest version of an API that both sides support, or raises UnsupportedVersion."""
        self.session_lifetime_ms = 0
        """The milliseconds for which the login is valid; 0 for as long as the connection."""
        self._credentials = credentials
        self._version_of = version_of
        self._bare = not speaks_authenticate
        self._steps: Generator[bytes, bytes, None] | None = None

    def first(self) -> SetupRequest:
        """Return the first request.

        Raises:
            UnsupportedVersion: The broker does not support logins.
        """
        # Version 0 is followed by bare tokens, version 1 by SaslAuthenticate.
        version = 0 if self._bare else self._version_of(SASL_HANDSHAKE)
        self._bare = version == 0
        return SetupRequest(SASL_HANDSHAKE, version, SaslHandshakeRequest(self._credentials.mechanism))

    def received(self, frame: memoryview) -> SetupRequest | bytes | None:
        """Return the next message after a response; None once the login is done.

        Raises:
            AuthenticationFailed: The broker refuses the mechanism or the user, or does not authenticate itself.
            RemoteProtocolError: The response cannot be read.
        """
        if self._steps is None:
            _, handshake = decode_response(SASL_HANDSHAKE, 0 if self._bare else 1, frame, strict=False)
            if handshake.error_code:
                raise self._no_mechanism(handshake)
            self._steps = self._credentials.start()
            return self._next(next(self._steps, None))
        if self._bare:
            return self._after(self._steps, bytes(frame))
        version = self._version_of(SASL_AUTHENTICATE)
        _, response = decode_response(SASL_AUTHENTICATE, version, frame, strict=False)
        if response.error_code:
            refused = self._refused(Code(response.error_code), response.error_message)
            with suppress(StopIteration):
                self._steps.throw(refused)  # the mechanism raises it again, perhaps with a reason
            raise refused
        self.session_lifetime_ms = max(0, response.session_lifetime_ms)
        return self._after(self._steps, bytes(response.auth_bytes))

    def _after(self, steps: Generator[bytes, bytes, None], challenge: bytes) -> SetupRequest | bytes | None:
        """Return the mechanism's response to a challenge, which is empty in the broker's last message."""
        try:
            message = steps.send(challenge)
        except StopIteration:
            return None
        if not challenge:
            raise AuthenticationFailed(
                f"the login with {self._credentials.mechanism} failed: the broker ended it before it proved that it knows the "
                "user. Do not trust it: it may be another peer",
                fatal=True,
            )
        return self._next(message)

    def _next(self, message: bytes | None) -> SetupRequest | bytes | None:
        if message is None or self._bare:
            return message
        return SetupRequest(SASL_AUTHENTICATE, self._version_of(SASL_AUTHENTICATE), SaslAuthenticateRequest(message))

    def _no_mechanism(self, response: SaslHandshakeResponse) -> AuthenticationFailed:
        code, wanted = Code(response.error_code), self._credentials.mechanism
        offered = ", ".join(map(for_log, response.mechanisms[:20]))
        if code is Code.UNSUPPORTED_SASL_MECHANISM:
            failure = f"the broker does not take the mechanism {wanted} here, but {offered or 'none'}"
            advice = (
                "set kafka.sasl.mechanism to one that it takes, or enable it on the broker (sasl.enabled.mechanisms)"
            )
        elif code is Code.ILLEGAL_SASL_STATE and not response.mechanisms:
            failure = "the listener takes no logins (SASL)"
            advice = "set kafka.security.protocol to SSL or PLAINTEXT, or connect to the port of a listener with SASL"
        else:
            failure, advice = f"the broker refuses SaslHandshake for {wanted}", code.advice
        return AuthenticationFailed(
            f"{failure}: {code.name} ({code}). What to do: {advice}.", fatal=Action.RETRY not in code.action, code=code
        )

    def _refused(self, code: Code, message: str | None) -> AuthenticationFailed:
        mechanism, user = self._credentials.mechanism, self._credentials.user
        who = f"user {for_log(user, limit=None)!r} with {mechanism}" if user else f"the login with {mechanism}"
        failure = f" The broker says: {for_log(message)}." if message else ""
        advice = code.advice
        if code is Code.SASL_AUTHENTICATION_FAILED:
            given = f"check {self._credentials.given_by}, and that the user exists for this mechanism"
            advice = _CHECKS.get(mechanism, given)
        return AuthenticationFailed(
            f"the broker refuses {who}: {code.name} ({code}).{failure} What to do: {advice}.",
            fatal=Action.RETRY not in code.action,
            code=code,
        )


_CHECKS = {
    "OAUTHBEARER": "check the token: its audience, issuer and scope, and its end against this machine's clock",
    "GSSAPI": "look into the broker's log: its keytab must have the newest key of the principal to which the client connects, "
    "and its clock must agree with that of the KDC",
}
"""The advice for mechanisms whose credentials are not those of options."""
