"""Fetches a token from an endpoint by client credentials (RFC 6749, 4.4): one attempt, bounded by deadlines.

It speaks HTTP over its own socket and TLS context instead of `urllib.request`: it opens nothing but https (http for loopback
addresses), follows no redirect (CVE-2025-27817), and ignores variables such as `https_proxy`, which could send the secret to
another host.
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

from spark_producer.common.addresses import format_address
from spark_producer.common.escape import for_log
from spark_producer.common.redaction import remember
from spark_producer.common.secret import Secret
from spark_producer.errors import AuthenticationFailed, ConfigError, ConnectionFailed, TlsFailed
from spark_producer.network.transport import resolve as addresses_of
from spark_producer.security.contexts import client_context
from spark_producer.security.references import is_reference, resolve
from spark_producer.security.settings import OidcSettings, TlsSettings
from spark_producer.security.tls_errors import Peer
from spark_producer.security.tls_stream import TlsStream
from spark_producer.security.token import Token, jwt_expiry, parse_seconds, token_problem

MAX_RESPONSE_BYTES: Final = 1024 * 1024
"""Maximum bytes of a response body; a token has a few kilobytes."""

FINAL_CODES: Final = frozenset({*range(300, 408), *range(409, 412), *range(413, 416), 501, 505})
"""HTTP codes after which the same request would fail again (Kafka's HttpAccessTokenRetriever), and all redirects."""

_ENDPOINT: Final = "kafka.sasl.oauthbearer.token.endpoint.url"
_OK: Final = 200
_PIECE: Final = 16 * 1024


class _Target(NamedTuple):
    host: str
    port: int
    tls: bool
    path: str

    def __str__(self) -> str:
        """Return the name for messages, without the path, which may hold secrets."""
        return f"the token endpoint {format_address(self.host, self.port)}"


def fetch_token(
    oidc: OidcSettings, allowed: Sequence[str], *, now: float, clock: Callable[[], float] = time.monotonic
) -> Token:
    """Return a token from the endpoint. It blocks for the two timeouts of `oidc` and the time of the resolver at most.

    `now` is in seconds since 1970; `clock` is for the deadlines. References to secrets in `oidc` are resolved on each call.

    Raises:
        AuthenticationFailed: there is no token. It is fatal if the same request would fail again.
        ConfigError: the URL or a reference is wrong. It has the attribute `fatal`.
    """
    target = _target(oidc.token_endpoint)
    request = _request(target, oidc, allowed)
    problem, final, answer = _request_token(target, request, oidc, allowed, clock)
    if not problem:
        problem, final = _response_problem(*answer)
    token = Token(Secret("")) if problem else _token(answer[1], now)
    if token is None:
        problem, final = "its response has no access_token", True
    elif not problem:
        problem = token_problem(token.text) or _token_type_problem(answer[1]) or _lifetime_problem(answer[1])
        final = True
    if problem or token is None:
        del answer  # it may hold a token, which must not show in a traceback
        raise AuthenticationFailed(f"no token from {target}: {problem}", fatal=final)
    return token


def _target(url: str) -> _Target:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        parts, host, port = urlsplit(""), "", None
    # A control character or a blank could add header lines to the request.
    if not host or "@" in parts.netloc or not url.isascii() or not url.isprintable() or " " in url:
        raise ConfigError(f"{_ENDPOINT} is not a URL of the form https://host/path", fatal=True)
    if parts.scheme != "https" and not (parts.scheme == "http" and _is_loopback(host)):
        raise ConfigError(f"{_ENDPOINT} must begin with https, since the client secret is sent there", fatal=True)
    tls = parts.scheme == "https"
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return _Target(host, port or (443 if tls else 80), tls, path)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _request(target: _Target, oidc: OidcSettings, allowed: Sequence[str]) -> Secret:
    """Return the whole request as ASCII text."""
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
    """Return the form encoding of a text. A variable has lone surrogates for bytes that are not UTF-8; they are encoded too."""
    return quote_plus(text, errors="surrogatepass")


def _request_token(
    target: _Target, request: Secret, oidc: OidcSettings, allowed: Sequence[str], clock: Callable[[], float]
) -> tuple[str, bool, tuple[int, bytes]]:
    """Return the problem of the transport and whether it is fatal, and the status and body of the response."""
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
        return "timed out (kafka.sasl.login.connect.timeout.ms, kafka.sasl.login.read.timeout.ms)", False, nothing
    except OSError as error:
        return f"the connection failed: {error.strerror or type(error).__name__}", False, nothing
    except (
        HTTPException,
        ValueError,
    ) as error:  # its text comes from the peer; ValueError is that of a chunk with a negative size
        return f"the response is not HTTP ({type(error).__name__})", False, nothing


def _connect(target: _Target, oidc: OidcSettings, allowed: Sequence[str], clock: Callable[[], float]) -> _Channel:
    """Return a connection to the first address that accepts one, with TLS for https."""
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
    response = HTTPResponse(channel, method="POST")  # type: ignore[arg-type]  # of a socket it uses only `makefile`
    with response:
        response.begin()
        return response.status, response.read(MAX_RESPONSE_BYTES + 1)


class _Channel(io.RawIOBase):
    """One connection, plain or with TLS. All its waits share one deadline, so that a slow peer cannot prolong them."""

    def __init__(
        self, connected: socket.socket, stream: TlsStream | None, deadline: float, clock: Callable[[], float]
    ) -> None:
        self.deadline = deadline
        self._socket = connected
        self._stream = stream
        self._clock = clock

    def connect(self, address: tuple[Any, ...]) -> None:
        """Connect, and complete the TLS handshake."""
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
        """Return the reader of `HTTPResponse`."""
        return io.BufferedReader(self, _PIECE)

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, space: Any, /) -> int:
        """Read into `space`, and return the number of bytes; 0 if the peer has closed."""
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
        """Return the socket with a timeout that ends at the deadline."""
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


# The response


def _response_problem(status: int, body: bytes) -> tuple[str, bool]:
    """Return the problem of a response, and whether it is fatal; an empty text if the response can be used."""
    if len(body) > MAX_RESPONSE_BYTES:
        return f"its response is larger than {MAX_RESPONSE_BYTES // 1024} KiB", True
    if status == _OK:
        return "", False
    if 300 <= status < 400:
        return f"it redirects (HTTP {status}), and redirects are not followed. Set {_ENDPOINT} to the target", True
    parsed = _object(body)
    parts = [
        for_log(text) for name in ("error", "error_description") if isinstance(text := parsed.get(name), str) and text
    ]
    details = f": {', '.join(parts)}" if parts else ""
    return f"it answers HTTP {status}{details}", status in FINAL_CODES


def _token(body: bytes, now: float) -> Token | None:
    """Return the token of a response. It expires at the time in the response, else at the time in the token itself."""
    answer = _object(body)
    text = answer.get("access_token")
    if not isinstance(text, str) or not text:
        return None
    secret = Secret(text)
    life = parse_seconds(answer.get("expires_in"))
    return Token(secret, jwt_expiry(secret) if life is None else now + life)


def _token_type_problem(body: bytes) -> str:
    kind = _object(body).get("token_type", "bearer")
    return "" if isinstance(kind, str) and kind.lower() == "bearer" else "the type of its token is not Bearer"


def _lifetime_problem(body: bytes) -> str:
    """Return the problem of a response whose token has expired already or has an infinite lifetime; empty if it is valid."""
    life = parse_seconds(_object(body).get("expires_in"))
    if life is None or (life > 0 and math.isfinite(life)):
        return ""
    return f"its token expires in {life:g} seconds (expires_in), which is not a usable lifetime"


def _object(body: bytes) -> dict[str, object]:
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return parsed if isinstance(parsed, dict) else {}
