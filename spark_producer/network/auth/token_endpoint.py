"""Tokens by client credentials from an endpoint (RFC 6749, 4.4): one attempt, which ends by its deadlines whatever the peer does.

It speaks HTTP over a socket and a TLS context of its own, and not by `urllib.request`: nothing but https (http for this machine)
is ever opened, no redirect is followed (CVE-2025-27817), and no variable such as `https_proxy` sends the secret elsewhere.
"""

from __future__ import annotations

import base64
import io
import json
import math
import socket
import time
from collections.abc import Callable, Sequence
from http.client import HTTPException, HTTPResponse
from ipaddress import ip_address
from typing import Any, Final, NamedTuple
from urllib.parse import quote_plus, urlencode, urlsplit

from spark_producer.common.escape import for_log
from spark_producer.common.redaction import remember
from spark_producer.common.secret import Secret
from spark_producer.errors import AuthenticationFailed, ConfigError, ConnectionFailed, TlsFailed
from spark_producer.network.addresses import format_address
from spark_producer.network.transport import resolve as addresses_of
from spark_producer.security.contexts import client_context
from spark_producer.security.references import is_reference, resolve
from spark_producer.security.settings import OidcSettings, TlsSettings
from spark_producer.security.tls_errors import Peer
from spark_producer.security.tls_stream import TlsStream
from spark_producer.security.token import Token, jwt_expiry, parse_seconds, token_problem

MAX_RESPONSE_BYTES: Final = 1024 * 1024
"""The most bytes of a body; a token has a few kilobytes."""

FINAL_CODES: Final = frozenset({*range(300, 408), *range(409, 412), *range(413, 416), 501, 505})
"""The HTTP codes after which the same question gets the same answer (Kafka's HttpAccessTokenRetriever), and all redirects."""

_ENDPOINT: Final = "kafka.sasl.oauthbearer.token.endpoint.url"
_OK: Final = 200
_PIECE: Final = 16 * 1024


class _Target(NamedTuple):
    host: str
    port: int
    tls: bool
    path: str

    def __str__(self) -> str:
        """Return what messages name: the path may hold more than an address."""
        return f"the token endpoint {format_address(self.host, self.port)}"


def fetch_token(
    oidc: OidcSettings, allowed: Sequence[str], *, now: float, clock: Callable[[], float] = time.monotonic
) -> Token:
    """Ask the endpoint for a token. It blocks, for at most the two timeouts of `oidc` and what the resolver takes.

    `now` is in seconds since 1970; `clock` is for the deadlines. References to secrets in `oidc` are resolved anew.

    Raises:
        AuthenticationFailed: There is no token. It is fatal if the same question will get the same answer.
        ConfigError: The URL or a reference is wrong. It has the attribute `fatal`.
    """
    target = _target(oidc.token_endpoint)
    request = _request(target, oidc, allowed)
    problem, final, answer = _request_token(target, request, oidc, allowed, clock)
    if not problem:
        problem, final = _response_problem(*answer)
    token = Token(Secret("")) if problem else _token(answer[1], now)
    if token is None:
        problem, final = "its answer holds no access_token", True
    elif not problem:
        problem = token_problem(token.text) or _token_type_problem(answer[1]) or _lifetime_problem(answer[1])
        final = True
    if problem or token is None:
        del answer  # it may hold a token, which no traceback shall show
        raise AuthenticationFailed(f"no token from {target}: {problem}", fatal=final)
    return token


def _target(url: str) -> _Target:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        parts, host, port = urlsplit(""), "", None
    # A control character or a blank could add lines of its own to the request.
    if not host or "@" in parts.netloc or not url.isascii() or not url.isprintable() or " " in url:
        raise ConfigError(f"{_ENDPOINT} is no address of the form https://host/path", fatal=True)
    if parts.scheme != "https" and not (parts.scheme == "http" and _is_loopback(host)):
        raise ConfigError(f"{_ENDPOINT} must begin with https: the secret of the client goes there", fatal=True)
    tls = parts.scheme == "https"
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return _Target(host, port or (443 if tls else 80), tls, path)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _request(target: _Target, oidc: OidcSettings, allowed: Sequence[str]) -> Secret:
    """Return the whole request as text of ASCII."""
    name = "kafka.sasl.oauthbearer.client.credentials.client"
    written = Secret(oidc.client_id)
    client = resolve(written, allowed, name=f"{name}.id") if is_reference(oidc.client_id) else oidc.client_id
    secret = Secret(resolve(oidc.client_secret, allowed, name=f"{name}.secret"))
    remember(secret)
    if ":" in client and not oidc.urlencode_header:
        raise ConfigError(
            f"{name}.id has a colon, which needs kafka.sasl.oauthbearer.header.urlencode=true", fatal=True
        )
    form = {"grant_type": "client_credentials"} | ({"scope": oidc.scope} if oidc.scope else {})
    body = urlencode(form)
    return Secret(
        f"POST {target.path} HTTP/1.1\r\nHost: {format_address(target.host, target.port)}\r\n"
        f"Authorization: Basic {_basic(client, secret, oidc.urlencode_header)}\r\n"
        "Content-Type: application/x-www-form-urlencoded\r\nAccept: application/json\r\nAccept-Encoding: identity\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}"
    )


def _basic(client: str, secret: Secret, encoded: bool) -> str:
    if encoded:
        client, secret = _form_encoded(client), Secret(_form_encoded(secret.reveal()))
    pair = f"{client}:{secret.reveal()}"
    return base64.b64encode(pair.encode("utf-8", "surrogatepass")).decode()


def _form_encoded(text: str) -> str:
    """Return a text as forms write it, lone surrogates too: a variable has them for bytes that are no UTF-8."""
    return quote_plus(text, errors="surrogatepass")


def _request_token(
    target: _Target, request: Secret, oidc: OidcSettings, allowed: Sequence[str], clock: Callable[[], float]
) -> tuple[str, bool, tuple[int, bytes]]:
    """Return what went wrong on the way and whether it will again, and the code and body of the answer."""
    nothing = 0, b""
    try:
        channel = _connect(target, oidc, allowed, clock)
        with channel:
            return "", False, _exchange(channel, request, clock() + oidc.read_timeout)
    except TlsFailed as error:
        return f"{error} (its CAs are those of kafka.https.ca.location)", error.fatal, nothing
    except ConnectionFailed as error:
        return str(error), False, nothing
    except TimeoutError:
        return "it was not done in time (kafka.sasl.login.connect.timeout.ms, .read.timeout.ms)", False, nothing
    except OSError as error:
        return f"the connection failed: {error.strerror or type(error).__name__}", False, nothing
    except (
        HTTPException,
        ValueError,
    ) as error:  # its text is what the peer sent; ValueError is of a chunk of less than 0 bytes
        return f"it does not answer in HTTP ({type(error).__name__})", False, nothing


def _connect(target: _Target, oidc: OidcSettings, allowed: Sequence[str], clock: Callable[[], float]) -> _Channel:
    """Return a connection to the first address that takes one, with TLS if it is to have it."""
    deadline = clock() + oidc.connect_timeout
    context = client_context(TlsSettings(trust=oidc.trust), allowed) if target.tls else None
    last: OSError | None = None
    for address in addresses_of(target.host, target.port):
        connected = socket.socket(address.family, socket.SOCK_STREAM)
        stream = TlsStream(context, target.host, peer=Peer(str(target))) if context is not None else None
        channel = _Channel(connected, stream, deadline, clock)
        try:
            channel.connect(address.socket_address)
        except TimeoutError:
            channel.close()
            raise
        except OSError as error:
            channel.close()
            last = error
            continue
        except TlsFailed:
            channel.close()
            raise
        return channel
    raise last or OSError("no address")


def _exchange(channel: _Channel, request: Secret, deadline: float) -> tuple[int, bytes]:
    channel.deadline = deadline
    channel.send(request.reveal().encode("ascii"))
    response = HTTPResponse(channel, method="POST")  # type: ignore[arg-type]  # of a socket it takes `makefile` alone
    with response:
        response.begin()
        return response.status, response.read(MAX_RESPONSE_BYTES + 1)


class _Channel(io.RawIOBase):
    """One connection, plain or with TLS. No wait of it goes beyond one deadline for all, so no peer can go on for ever."""

    def __init__(
        self, connected: socket.socket, stream: TlsStream | None, deadline: float, clock: Callable[[], float]
    ) -> None:
        self.deadline = deadline
        self._socket = connected
        self._stream = stream
        self._clock = clock

    def connect(self, address: tuple[Any, ...]) -> None:
        """Connect, and do the handshake of TLS."""
        self._limited().connect(address)
        if self._stream is None:
            return
        while not self._stream.handshake():
            self._flush(self._stream)
            self._fill(self._stream)
        self._flush(self._stream)

    def send(self, message: bytes) -> None:
        """Send all of a message."""
        if self._stream is None:
            self._limited().sendall(message)
            return
        self._stream.write(message)
        self._flush(self._stream)

    def makefile(self, _mode: str) -> io.BufferedReader:
        """Return what `HTTPResponse` reads from."""
        return io.BufferedReader(self, _PIECE)

    def readable(self) -> bool:
        """Whether it can be read: always."""
        return True

    def readinto(self, space: Any, /) -> int:
        """Read something into `space`; 0 if the peer has closed."""
        if self._stream is None:
            return self._limited().recv_into(space)
        while (count := self._stream.read_into(memoryview(space))) is None:
            self._flush(self._stream)
            self._fill(self._stream)
        return count

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()
        super().close()

    def _limited(self) -> socket.socket:
        """Return the socket, whose next call ends at the deadline."""
        rest = self.deadline - self._clock()
        if rest <= 0:
            raise TimeoutError
        self._socket.settimeout(rest)
        return self._socket

    def _flush(self, stream: TlsStream) -> None:
        outgoing = stream.take_outgoing()
        if outgoing:
            self._limited().sendall(outgoing)

    def _fill(self, stream: TlsStream) -> None:
        received = self._limited().recv(_PIECE)
        if received:
            stream.feed(received)
        else:
            stream.feed_eof()


# What the answer means


def _response_problem(status: int, body: bytes) -> tuple[str, bool]:
    """Return why this answer is none to use, and whether it will be the same again; an empty text if it may be used."""
    if len(body) > MAX_RESPONSE_BYTES:
        return f"its answer is larger than {MAX_RESPONSE_BYTES // 1024} KiB", True
    if status == _OK:
        return "", False
    if 300 <= status < 400:
        return f"it redirects (HTTP {status}), which is not followed: set {_ENDPOINT} to where it leads", True
    parsed = _object(body)
    parts = [
        for_log(text) for name in ("error", "error_description") if isinstance(text := parsed.get(name), str) and text
    ]
    details = f": {', '.join(parts)}" if parts else ""
    return f"it answers HTTP {status}{details}", status in FINAL_CODES


def _token(body: bytes, now: float) -> Token | None:
    """Return the token of an answer. It lives as long as the answer says, or else as it says itself."""
    answer = _object(body)
    text = answer.get("access_token")
    if not isinstance(text, str) or not text:
        return None
    secret = Secret(text)
    life = parse_seconds(answer.get("expires_in"))
    return Token(secret, jwt_expiry(secret) if life is None else now + life)


def _token_type_problem(body: bytes) -> str:
    kind = _object(body).get("token_type", "bearer")
    return "" if isinstance(kind, str) and kind.lower() == "bearer" else "its token is none of the type Bearer"


def _lifetime_problem(body: bytes) -> str:
    """Return what is wrong with a token of which the answer says that it has ended already, or when no clock can tell."""
    life = parse_seconds(_object(body).get("expires_in"))
    if life is None or (life > 0 and math.isfinite(life)):
        return ""
    return f"it says that the token expires in {life:g} seconds (expires_in), which no token can be used for"


def _object(body: bytes) -> dict[str, object]:
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return parsed if isinstance(parsed, dict) else {}
