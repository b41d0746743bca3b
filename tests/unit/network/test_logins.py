"""The logins of a client: ready at once with a password, and with a token when there is one."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_producer.common.secret import Secret
from spark_producer.errors import AuthenticationFailed
from spark_producer.network.auth import Logins, make_logins
from spark_producer.security.settings import OidcSettings, SaslSettings, SecuritySettings, TlsSettings
from tests.fakes.token_endpoint import Asked, Reply, TokenEndpoint, token_reply

SECONDS = 20
ROOT = Path(__file__).resolve().parents[3]
REFUSED = b'{"status":"invalid_token"}'


class Woken:
    """The wakeup of a client."""

    def __init__(self) -> None:
        self._changed = threading.Condition()

    def __call__(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def until_ready(self, logins: Logins) -> None:
        """Ask as a client does, which is woken when something has changed."""
        end = time.monotonic() + SECONDS
        with self._changed:
            while not logins.ready():
                left = end - time.monotonic()
                assert left > 0, logins.error()
                self._changed.wait(min(left, 0.05))

    def until_error(self, logins: Logins) -> AuthenticationFailed:
        end = time.monotonic() + SECONDS
        with self._changed:
            while (error := logins.error()) is None:
                left = end - time.monotonic()
                assert left > 0
                assert not logins.ready()
                self._changed.wait(min(left, 0.05))
        assert isinstance(error, AuthenticationFailed)
        return error


@pytest.fixture
def woken() -> Iterator[Woken]:
    """A wakeup; the thread of the tokens must have ended soon after the test."""
    yield Woken()
    for thread in threading.enumerate():
        if thread.name == "pyproducer-tokens":
            thread.join(SECONDS)
            assert not thread.is_alive()


def security(endpoint: TokenEndpoint, scope: str = "") -> SecuritySettings:
    oidc = OidcSettings(endpoint.url, "client", Secret("secret"), scope=scope)
    return SecuritySettings(sasl=SaslSettings("OAUTHBEARER", oidc=oidc, extensions=(("logicalCluster", "lkc"),)))


def named(_: Asked) -> Reply:
    """A token that says how often one was asked for."""
    named.count += 1  # type: ignore[attr-defined]
    return token_reply(f"token{named.count}")  # type: ignore[attr-defined]


@pytest.fixture
def endpoint() -> Iterator[TokenEndpoint]:
    named.count = 0  # type: ignore[attr-defined]
    with TokenEndpoint(named) as served:
        yield served


def message(logins: Logins) -> bytes:
    return next(logins.for_host("any").start())


def test_without_sasl_there_are_none(woken: Woken) -> None:
    assert make_logins(SecuritySettings(), woken) is None
    assert make_logins(SecuritySettings(tls=TlsSettings()), woken) is None


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_password_is_always_ready(mechanism: str, woken: Woken) -> None:
    logins = make_logins(SecuritySettings(sasl=SaslSettings(mechanism, "app", Secret("pw"))), woken)
    assert logins is not None
    assert logins.ready()
    assert logins.error() is None
    login = logins.for_host("broker")
    assert (login.mechanism, login.user) == (mechanism, "app")
    assert b"app" in next(login.start())
    logins.close()


@pytest.mark.covers("SEC18")
def test_a_token_is_asked_for_once_for_all_clients_of_a_process(endpoint: TokenEndpoint, woken: Woken) -> None:
    clients = [make_logins(security(endpoint), woken) for _ in range(3)]
    for logins in clients:
        assert logins is not None
        woken.until_ready(logins)
        assert message(logins) == b"n,,\x01auth=Bearer token1\x01logicalCluster=lkc\x01\x01"
    assert len(endpoint.asked) == 1
    other = make_logins(security(endpoint, scope="other"), woken)
    assert other is not None
    woken.until_ready(other)
    assert b"token2" in message(other)
    for logins in (*clients, other):
        assert logins is not None
        logins.close()
        logins.close()
        assert not logins.ready()
        assert logins.error() is None


@pytest.mark.covers("SEC18")
def test_without_a_token_a_login_cannot_start_and_says_why(woken: Woken) -> None:
    with TokenEndpoint(lambda _: Reply(401, (b'{"error":"invalid_client"}',))) as endpoint:
        logins = make_logins(security(endpoint), woken)
        assert logins is not None
        with pytest.raises(AuthenticationFailed, match="being fetched") as early:
            logins.for_host("any").start()
        assert not early.value.fatal
        error = woken.until_error(logins)
        assert error.fatal
        with pytest.raises(AuthenticationFailed, match="invalid_client") as refused:
            logins.for_host("any").start()
        assert refused.value is not error, "its traceback is that of one login"
        logins.close()


@pytest.mark.covers("SEC19")
def test_a_refused_token_is_replaced_once_before_the_refusal_is_fatal(endpoint: TokenEndpoint, woken: Woken) -> None:
    logins = make_logins(security(endpoint), woken)
    assert logins is not None
    for count, fatal in ((1, False), (2, True)):
        woken.until_ready(logins)
        run = logins.for_host("any").start()
        assert f"token{count}".encode() in next(run)
        assert run.send(REFUSED) == b"\x01"
        with pytest.raises(AuthenticationFailed, match=r"the token expires in 3[56]\d\d s") as refused:
            run.throw(AuthenticationFailed("SASL_AUTHENTICATION_FAILED (58)", fatal=True, code=58))
        assert refused.value.__dict__ == {"fatal": fatal, "code": 58}
        assert "(58)" in str(refused.value)
    logins.close()


@pytest.mark.covers("SEC18")
def test_an_accepted_token_begins_a_new_row(endpoint: TokenEndpoint, woken: Woken) -> None:
    logins = make_logins(security(endpoint), woken)
    assert logins is not None
    for fatal in (False, None, False):
        woken.until_ready(logins)
        run = logins.for_host("any").start()
        next(run)
        if fatal is None:
            with pytest.raises(StopIteration):
                run.send(b"")
            continue
        run.send(REFUSED)
        with pytest.raises(AuthenticationFailed) as refused:
            run.send(b"")
        assert refused.value.fatal is fatal
    logins.close()


FORK = """
import os, sys, time
from spark_producer.network.auth import make_logins
from spark_producer.security import SaslSettings, SecuritySettings
logins = make_logins(SecuritySettings(sasl=SaslSettings("OAUTHBEARER", provider="tokens:get")), lambda: None)
def first_message():
    end = time.monotonic() + 20
    while not logins.ready():
        assert time.monotonic() < end, logins.error()
        time.sleep(0.005)  # a process of its own, which imports nothing of the tests
    return next(logins.for_host("x").start()).decode()
before = first_message()
child = os.fork()
after = first_message()
print(child == 0, before.split()[1].split(chr(1))[0], after.split()[1].split(chr(1))[0], flush=True)
logins.close()
if child:
    assert os.waitpid(child, 0)[1] == 0
"""


@pytest.mark.covers("SEC18")
def test_a_forked_process_gets_a_token_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "tokens.py").write_text("import os\ndef get():\n    return f'of-{os.getpid()}', 9e12\n")
    script = tmp_path / "forks.py"
    script.write_text(FORK)
    environment = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", str(script)],
        capture_output=True, text=True, timeout=60, env=environment, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    reported = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines()}
    assert reported["False"][0] == reported["False"][1] == reported["True"][0] != reported["True"][1]
