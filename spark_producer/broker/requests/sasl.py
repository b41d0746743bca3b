"""The handlers of SASL requests that are refused: there is no SASL on the listener, or a re-authentication comes too early.

All other logins end before the handlers, in `broker.security.sasl_authenticator`.
"""

from __future__ import annotations

from spark_producer.broker.context import Context, HandlerResult
from spark_producer.common.error_codes import Code
from spark_producer.protocol import messages


def sasl_handshake(
    _context: Context, _version: int, _request: messages.SaslHandshakeRequest
) -> HandlerResult[messages.SaslHandshakeResponse]:
    """Refuse a SASL handshake: the listener has no SASL, or a re-authentication comes too early."""
    return HandlerResult(messages.SaslHandshakeResponse(Code.ILLEGAL_SASL_STATE))


def sasl_authenticate(
    _context: Context, _version: int, _request: messages.SaslAuthenticateRequest
) -> HandlerResult[messages.SaslAuthenticateResponse]:
    """Refuse a SASL message without a handshake."""
    message = "SaslAuthenticate request received after successful authentication"
    return HandlerResult(messages.SaslAuthenticateResponse(Code.ILLEGAL_SASL_STATE, message))
