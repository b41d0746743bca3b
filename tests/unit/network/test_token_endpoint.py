"""The token endpoint: what it is asked, what of its answers counts, and that no answer takes for ever or shows a secret."""

from __future__ import annotations

import base64
import itertools
import json
import socket
import ssl
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from threading import Thread

import pytest
import trustme

from spark_producer.common.secret import Secret
from spark_producer.errors import AuthenticationFailed, ConfigError, PyProducerError
from spark_producer.network.auth import token_endpoint
from spark_producer.network.auth.token_endpoint import FINAL_CODES, MAX_RESPONSE_BYTES, fetch_token
from spark_producer.security.settings import OidcSettings, Store
from spark_producer.security.token import ENDLESS
from tests.fakes.token_endpoint import Asked, Reply, TokenEndpoint, token_reply
from tests.support.ports import free_ports

CANARY = "canary-of-this-test"
NOW = 1_700_000_000.0
SECONDS = 20


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def serve(authority: trustme.CA) -> Iterator[Callable[..., TokenEndpoint]]:
    """Makes endpoints, which end with the test."""
    made: list[TokenEndpoint] = []

    def make(answer: Callable[[Asked], Reply] | Reply, *, tls: bool = False, name: str = "localhost") -> TokenEndpoint:
        context = None
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            authority.issue_cert(name).configure_cert(context)
        made.append(TokenEndpoint((lambda _: answer) if isinstance(answer, Reply) else answer, context))
        return made[-1]

    yield make
    for endpoint in made:
        endpoint.close()


def settings(url: str, authority: trustme.CA | None = None, **more: object) -> OidcSettings:
    trust = Store(pem=authority.cert_pem.bytes().decode()) if authority else None
    made = OidcSettings(url, "client", Secret(CANARY), trust=trust, connect_timeout=SECONDS, read_timeout=SECONDS)
    return replace(made, **more)  # type: ignore[arg-type]


def refusal(oidc: OidcSettings, clock: Callable[[], float] = time.monotonic) -> PyProducerError:
    """The error of a fetch. Neither it nor any frame of ours shows the secret."""
    with pytest.raises(PyProducerError) as refused:
        fetch_token(oidc, (), now=NOW, clock=clock)
    frames = [frame for frame, _ in traceback.walk_tb(refused.tb) if "spark_producer" in frame.f_code.co_filename]
    shown = repr(refused.value) + "".join(repr(frame.f_locals) for frame in frames)
    encoded = base64.b64encode(f"client:{CANARY}".encode()).decode()
    assert frames
    assert CANARY not in shown
    assert encoded not in shown
    assert str(refused.value).isprintable()
    return refused.value


def ticking() -> Callable[[], float]:
    """A clock that goes on by a second whenever it is looked at, so that deadlines come without waiting."""
    return itertools.count(0.0).__next__


@pytest.mark.covers("SEC17")
@pytest.mark.parametrize("tls", [False, True])
def test_a_token_by_client_credentials(tls: bool, serve: Callable[..., TokenEndpoint], authority: trustme.CA) -> None:
    endpoint = serve(token_reply("abc.def"), tls=tls)
    token = fetch_token(settings(endpoint.url, authority, scope="a b"), (), now=NOW)
    assert (token.text.reveal(), token.expires_at) == ("abc.def", NOW + 3600)
    (asked,) = endpoint.asked
    assert (asked.method, asked.path) == ("POST", "/oauth2/token")
    assert asked.body == "grant_type=client_credentials&scope=a+b"
    assert asked.headers["Content-Type"] == "application/x-www-form-urlencoded"
    assert asked.headers["Host"] == f"localhost:{endpoint.port}"
    assert base64.b64decode(asked.headers["Authorization"].removeprefix("Basic ")) == f"client:{CANARY}".encode()


@pytest.mark.covers("SEC17")
def test_without_a_scope_none_is_asked_for(serve: Callable[..., TokenEndpoint]) -> None:
    endpoint = serve(token_reply())
    fetch_token(settings(endpoint.url), (), now=NOW)
    assert endpoint.asked[0].body == "grant_type=client_credentials"


@pytest.mark.covers("SEC17")
def test_id_and_secret_are_form_encoded_if_asked(serve: Callable[..., TokenEndpoint]) -> None:
    endpoint = serve(token_reply())
    odd = settings(endpoint.url, client_id="a:b c", client_secret=Secret("ä+/=&%"), urlencode_header=True)
    fetch_token(odd, (), now=NOW)
    sent = base64.b64decode(endpoint.asked[0].headers["Authorization"].removeprefix("Basic "))
    assert sent == b"a%3Ab+c:%C3%A4%2B%2F%3D%26%25"
    with pytest.raises(ConfigError, match=r"header\.urlencode"):
        fetch_token(replace(odd, urlencode_header=False), (), now=NOW)


@pytest.mark.covers("SEC42")
def test_a_secret_that_is_no_utf8_is_encoded_too_and_raises_no_error_that_holds_it(
    serve: Callable[..., TokenEndpoint],
) -> None:
    endpoint = serve(token_reply())
    fetch_token(settings(endpoint.url, client_secret=Secret("x\udcff"), urlencode_header=True), (), now=NOW)
    sent = base64.b64decode(endpoint.asked[0].headers["Authorization"].removeprefix("Basic "))
    assert sent == b"client:x%ED%B3%BF"


@pytest.mark.covers("SEC17")
def test_references_are_resolved_again_for_each_token(serve: Callable[..., TokenEndpoint], tmp_path: Path) -> None:
    endpoint = serve(token_reply())
    file = tmp_path / "secret"
    oidc = settings(endpoint.url, client_secret=Secret(f"${{file:{file}}}"))
    for secret in ("first", "second"):
        file.write_text(secret + "\n", encoding="utf-8")
        fetch_token(oidc, [f"file:{tmp_path}/"], now=NOW)
        sent = endpoint.asked[-1].headers["Authorization"].removeprefix("Basic ")
        assert base64.b64decode(sent) == f"client:{secret}".encode()


def jwt(**claims: object) -> str:
    parts = [{"alg": "none"}, claims]
    return ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts) + ".x"


@pytest.mark.covers("SEC18")
@pytest.mark.parametrize(
    ("reply", "expires_at"),
    [
        (token_reply(expires_in=60), NOW + 60),
        (token_reply(expires_in="60"), NOW + 60),
        (token_reply(expires_in=0.5), NOW + 0.5),
        (token_reply(jwt(exp=NOW + 7), expires_in=None), NOW + 7),
        (token_reply(jwt(exp=NOW + 7), expires_in=60), NOW + 60),
        (token_reply(jwt(exp=NOW + 7), expires_in="soon"), NOW + 7),
        (token_reply(jwt(sub="x"), expires_in=None), ENDLESS),
        (token_reply("opaque", expires_in=None), ENDLESS),
        (token_reply("opaque", expires_in=1e300), 1e300),
        (token_reply("opaque", expires_in=2**62), NOW + 2**62),
        (token_reply(jwt(exp=-5), expires_in=None), -5),
        (token_reply("a.b.c", expires_in=True), ENDLESS),
    ],
)
def test_a_token_lives_as_long_as_the_answer_or_the_token_says(
    reply: Reply, expires_at: float, serve: Callable[..., TokenEndpoint]
) -> None:
    assert fetch_token(settings(serve(reply).url), (), now=NOW).expires_at == expires_at


@pytest.mark.parametrize(
    ("life", "reported"),
    [
        *((number, str(number)) for number in (0, -1, -0.5)),
        *(("-5", "-5"), ("0", "0"), ("nan", "nan"), ("-inf", "-inf")),
        *((float("nan"), "nan"), (float("inf"), "inf"), (10**400, "inf"), ("1e999", "inf"), (-(10**4000), "-inf")),
    ],
    ids=lambda value: str(value)[:10],
)
def test_a_token_that_lives_for_no_time_or_for_no_number_of_seconds_is_refused(
    life: object, reported: str, serve: Callable[..., TokenEndpoint]
) -> None:
    for token in ("opaque", jwt(exp=NOW + 60)):
        error = refusal(settings(serve(token_reply(token, expires_in=life)).url))
        assert f"its token expires in {reported} seconds (expires_in)" in str(error)


@pytest.mark.covers("SEC17")
@pytest.mark.parametrize("code", [*range(400, 418), 422, 425, 429, 500, 501, 502, 503, 504, 505, 511, 299, 204])
def test_some_codes_are_final_and_others_are_worth_another_try(code: int, serve: Callable[..., TokenEndpoint]) -> None:
    error = refusal(settings(serve(Reply(code, (b"{}",))).url))
    final = code in (400, 401, 402, 403, 404, 405, 406, 407, 409, 410, 411, 413, 414, 415, 501, 505)
    assert isinstance(error, AuthenticationFailed)
    assert error.fatal == final == (code in FINAL_CODES)
    assert f"HTTP {code}" in str(error)


@pytest.mark.covers("SEC17")
@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(code: int, serve: Callable[..., TokenEndpoint]) -> None:
    other = serve(token_reply())
    endpoint = serve(Reply(code, headers=(("Location", other.url),)))
    error = refusal(settings(endpoint.url))
    assert "redirects" in str(error)
    assert isinstance(error, AuthenticationFailed)
    assert error.fatal
    assert (len(endpoint.asked), len(other.asked)) == (1, 0)


@pytest.mark.covers("SEC17")
@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd", "file://localhost/etc/passwd", "ftp://localhost/x", "http://example.com/token",
        "http://127.0.0.1.example.com/", "http://localhost.example.com/", "http://10.0.0.1/", "gopher://localhost/",
        "/oauth2/token", "", "https://", "https://[::1", "https://localhost:99999/", "https://user:pw@localhost/",
        "http://localhost/a b", "http://localhost/a\r\nX-Y: z", "http://localhost/\x01", "data:,x", "http://localhost:x/",
        "http://[::ffff:10.0.0.1]/", "http://localhost/ä", "javascript:x", "HTTP://EXAMPLE.COM/",
    ],
)  # fmt: skip
def test_nothing_but_https_and_this_machine_is_ever_opened(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[object] = []
    monkeypatch.setattr(token_endpoint, "addresses_of", lambda *address: opened.append(address))
    error = refusal(settings(url))
    assert isinstance(error, ConfigError)
    assert not opened
    assert not url.partition("://")[2] or url not in str(error)


@pytest.mark.covers("SEC17")
def test_no_proxy_of_the_environment_is_used(
    serve: Callable[..., TokenEndpoint], monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = serve(Reply(502))
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
    assert fetch_token(settings(serve(token_reply()).url), (), now=NOW).text.reveal() == "token"
    assert not proxy.asked


@pytest.mark.covers("SEC17")
@pytest.mark.parametrize(
    ("body", "seen"),
    [
        (b'{"error":"no_client","error_description":"a\\nb\\u001b[31m"}', r"no_client, a\nb\x1b[31m"),
        (b'{"error":"e","secret":"' + CANARY.encode() + b'","error_description":7}', "HTTP 401: e"),
        (CANARY.encode(), "HTTP 401"),
        (b"<html>" + CANARY.encode() + b"</html>", "HTTP 401"),
        (b'["' + CANARY.encode() + b'"]', "HTTP 401"),
        (b"\xff\xfe", "HTTP 401"),
        (b"[" * 100_000, "HTTP 401"),
        (b'{"error":"' + b"x" * 5000 + b'"}', "x" * 299 + "…"),
        (b'{"error":' + b"9" * 5000 + b"}", "HTTP 401"),
    ],
)  # fmt: skip
def test_of_a_refusal_only_its_error_is_shown_and_escaped(
    body: bytes, seen: str, serve: Callable[..., TokenEndpoint]
) -> None:
    said = str(refusal(settings(serve(Reply(401, (body,))).url)))
    assert said.endswith(seen)


@pytest.mark.covers("SEC17")
@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (Reply(), "no access_token"),
        (Reply(body=(b"{}",)), "no access_token"),
        (Reply(body=(b'{"access_token":7}',)), "no access_token"),
        (Reply(body=(b'{"access_token":""}',)), "no access_token"),
        (Reply(body=(b'{"access_token":"' + CANARY.encode(),)), "no access_token"),
        (token_reply(f"{CANARY} with blanks"), "cannot|characters"),
        (token_reply(f"{CANARY}\r\n"), "characters"),
        (token_reply(CANARY, token_type="mac"), "is not Bearer"),
        (Reply(body=(b" " * (2 << 20),)), "larger than 1024 KiB"),
        (Reply(body=itertools.repeat(b"x" * 65536)), "larger than 1024 KiB"),
        (Reply(headers=(("Content-Length", str(1 << 40)),), body=itertools.repeat(b"x" * 65536)), "larger than"),
        (
            Reply(
                headers=(("Transfer-Encoding", "chunked"),), body=itertools.repeat(b"1000\r\n" + b"x" * 4096 + b"\r\n")
            ),
            "larger than",
        ),
    ],
)
def test_an_answer_without_a_token_that_can_be_sent_is_final(
    reply: Reply, reason: str, serve: Callable[..., TokenEndpoint]
) -> None:
    error = refusal(settings(serve(reply).url))
    assert isinstance(error, AuthenticationFailed)
    assert error.fatal
    assert any(part in str(error) for part in reason.split("|"))


@pytest.mark.covers("SEC17")
def test_the_largest_answer_is_taken(serve: Callable[..., TokenEndpoint]) -> None:
    body = b'{"access_token":"x"}'
    padded = body + b" " * (MAX_RESPONSE_BYTES - len(body))
    assert fetch_token(settings(serve(Reply(body=(padded,))).url), (), now=NOW).text.reveal() == "x"


@pytest.mark.covers("SEC17")
@pytest.mark.parametrize("tls", [False, True])
def test_a_body_that_drips_ends_at_the_deadline(
    tls: bool, serve: Callable[..., TokenEndpoint], authority: trustme.CA
) -> None:
    endpoint = serve(Reply(body=itertools.repeat(b" ")), tls=tls)
    clock = ticking()
    error = refusal(settings(endpoint.url, authority, connect_timeout=50.0, read_timeout=50.0), clock)
    assert clock() < 150, "each wait is one look at the clock"
    assert "timed out" in str(error)
    assert isinstance(error, AuthenticationFailed)
    assert not error.fatal


class RawServer:
    """A listener on the loopback that does one thing with each connection, until the test ends."""

    def __init__(self, first: bytes, then: bytes = b"") -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._first, self._then = first, then
        self._thread = Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        try:
            connected, _ = self._listener.accept()
        except OSError:  # closed: the client had given up before it connected
            return
        with connected:
            connected.settimeout(SECONDS)
            try:
                connected.sendall(self._first)
                while self._then:
                    connected.sendall(self._then)
                while connected.recv(65536):
                    continue
            except OSError:
                return

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # wakes accept
        self._thread.join(SECONDS)
        self._listener.close()


@pytest.mark.covers("SEC17")
@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("first", [b"", b"H", b"\x16\x03\x03"])
def test_a_peer_that_says_nothing_is_given_up(scheme: str, first: bytes) -> None:
    server = RawServer(first)
    oidc = settings(f"{scheme}://localhost:{server.port}/", connect_timeout=0.2, read_timeout=0.2)
    assert "timed out" in str(refusal(oidc)) or first == b"H"
    server.close()


@pytest.mark.covers("SEC17")
def test_headers_that_never_end_are_given_up() -> None:
    for then in (b"X: y\r\n", b"x", b"HTTP/1.1 100 Continue\r\n\r\n"):
        server = RawServer(b"HTTP/1.1 200 OK\r\n" if b"100" not in then else b"", then)
        error = refusal(settings(f"http://localhost:{server.port}/", read_timeout=200.0), ticking())
        assert "timed out" in str(error) or "is not HTTP" in str(error)
        server.close()


@pytest.mark.covers("SEC17")
@pytest.mark.parametrize(
    "said",
    [
        b"\x00\x00\x00\x04abcd",
        b"SSH-2.0-x\r\n",
        b"HTTP/9 x y\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\nx",
    ],
)
def test_the_error_names_a_peer_that_does_not_speak_http(said: bytes) -> None:
    server = RawServer(said + b"\r\n" * 3)
    assert "is not HTTP" in str(refusal(settings(f"http://localhost:{server.port}/")))
    server.close()


@pytest.mark.covers("SEC17")
def test_no_listener_is_no_final_error() -> None:
    (port,) = free_ports(1)
    error = refusal(settings(f"http://127.0.0.1:{port}/"))
    assert isinstance(error, AuthenticationFailed)
    assert not error.fatal
    assert f"127.0.0.1:{port}" in str(error)
    assert "refused" in str(error)


@pytest.mark.covers("SEC17")
def test_the_endpoints_certificate_is_checked(serve: Callable[..., TokenEndpoint], authority: trustme.CA) -> None:
    for endpoint, trusted in [
        (serve(token_reply(), tls=True), trustme.CA()),
        (serve(token_reply(), tls=True, name="other.example"), authority),
        (serve(token_reply(), tls=True), None),
    ]:
        error = refusal(settings(endpoint.url, trusted))
        assert "the certificate of the token endpoint" in str(error)
        assert "kafka.https.ca.location" in str(error)
        assert isinstance(error, AuthenticationFailed)
        assert error.fatal
        assert not endpoint.asked, "the secret was sent to an unverified server"


@pytest.mark.covers("SEC17")
def test_the_error_names_an_endpoint_without_tls(serve: Callable[..., TokenEndpoint], authority: trustme.CA) -> None:
    endpoint = serve(token_reply())
    error = refusal(settings(endpoint.url.replace("http:", "https:"), authority))
    assert "TLS" in str(error)
    assert not endpoint.asked
