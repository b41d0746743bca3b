"""The keeper of tokens: the first one in the background, the next ones in time, and what failures and refusals do to them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from queue import Empty, Queue
from random import Random
from threading import Condition

import pytest

from spark_producer.common.secret import Secret
from spark_producer.errors import AuthenticationFailed, PyProducerError
from spark_producer.network.auth.tokens import SLOW_FETCH_S, TokenCache, TokenRefresher
from spark_producer.security.settings import OidcSettings, SaslSettings
from spark_producer.security.token import ENDLESS, Token

SECONDS = 20
OIDC = OidcSettings("https://x/", "id", Secret("secret"), retry_backoff=0.5, retry_backoff_max=8.0)
SETTINGS = SaslSettings("OAUTHBEARER", oidc=OIDC)


class RefresherHarness:
    """A `TokenRefresher` with a clock that only the test moves, whose fetches end as the test says."""

    def __init__(self, settings: SaslSettings = SETTINGS) -> None:
        self.now = 1000.0
        self.begun: Queue[float] = Queue()
        self.results: Queue[Token | Exception] = Queue()
        self.changes = 0
        self._changed = Condition()
        self.refresher = TokenRefresher(self._fetch, settings, clock=lambda: self.now, random=Random(1))
        self.refresher.listen(self.changed)

    def _fetch(self, now: float) -> Token:
        self.begun.put(now)
        result = self.results.get(timeout=SECONDS)
        if isinstance(result, Exception):
            raise result
        return result

    def changed(self) -> None:
        with self._changed:
            self.changes += 1
            self._changed.notify_all()

    def ends(self, result: Token | Exception) -> float:
        """The fetch that has begun, or begins now, ends with `result`. Return when it began."""
        before = self.changes
        began = self.begun.get(timeout=SECONDS)
        self.results.put(result)
        with self._changed:
            assert self._changed.wait_for(lambda: self.changes > before, SECONDS)
        return began

    def at(self, now: float) -> Token | None:
        """Return the refresher's token at a time."""
        self.now = now
        return self.refresher.token(now)

    def next_attempt_in(self) -> float:
        """Return the seconds until the refresher fetches without a request."""
        return self.refresher._due - self.now

    def error(self) -> PyProducerError | None:
        return self.refresher.error(self.now)

    def close(self) -> None:
        self.refresher.close()
        self.results.put(AuthenticationFailed("the test is over"))
        assert self.refresher.join(SECONDS)


@pytest.fixture
def make() -> Iterator[Callable[..., RefresherHarness]]:
    """Return a function that makes harnesses; they are closed after the test."""
    made: list[RefresherHarness] = []

    def one(*arguments: SaslSettings) -> RefresherHarness:
        made.append(RefresherHarness(*arguments))
        return made[-1]

    yield one
    for harness in made:
        harness.close()


@pytest.fixture
def harness(make: Callable[..., RefresherHarness]) -> RefresherHarness:
    return make()


def token(text: str, expires_at: float) -> Token:
    return Token(Secret(text), expires_at)


@pytest.mark.covers("SEC18")
def test_nothing_is_fetched_before_the_first_request(harness: RefresherHarness) -> None:
    assert harness.error() is None
    assert harness.begun.empty()
    assert harness.at(1000.0) is None
    assert harness.begun.get(timeout=SECONDS) == 1000.0


@pytest.mark.covers("SEC18")
def test_the_first_token_comes_in_the_background_and_wakes_the_client(harness: RefresherHarness) -> None:
    first = token("first", 4600.0)
    assert harness.at(1000.0) is None
    assert harness.at(1000.5) is None
    harness.ends(first)
    assert harness.at(1001.0) is first
    assert harness.error() is None
    assert harness.begun.empty()


@pytest.mark.covers("SEC18")
def test_the_next_token_is_fetched_in_time_while_the_old_one_is_used(harness: RefresherHarness) -> None:
    first, second = token("first", 4600.0), token("second", 9000.0)
    harness.at(1000.0)
    harness.ends(first)
    assert 0.8 * 3600 <= harness.next_attempt_in() <= 0.85 * 3600
    assert harness.at(1000.0 + 0.85 * 3600 + 1) is first
    assert harness.ends(second) >= 1000.0 + 0.8 * 3600
    assert harness.at(4070.0) is second


@pytest.mark.covers("SEC18")
def test_a_failed_refresh_keeps_the_old_token_while_it_lives(
    harness: RefresherHarness, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = token("first", 4600.0), token("second", 9000.0)
    harness.at(1000.0)
    harness.ends(first)
    harness.at(4100.0)
    with caplog.at_level(logging.WARNING):
        harness.ends(AuthenticationFailed("HTTP 503"))
    assert "HTTP 503" in caplog.text
    assert harness.at(4100.0) is first
    assert harness.error() is None
    harness.at(4100.0 + 0.5 * 1.2)
    harness.ends(AuthenticationFailed("HTTP 503 again"))
    assert harness.at(4600.0) is None
    harness.ends(AuthenticationFailed("HTTP 503 for the third time"))
    assert "third" in str(harness.error())
    harness.at(4700.0)
    harness.ends(second)
    assert harness.at(4701.0) is second
    assert harness.error() is None


@pytest.mark.covers("SEC18")
def test_attempts_come_after_growing_pauses(harness: RefresherHarness) -> None:
    harness.at(1000.0)
    for failure, pause in enumerate([0.5, 1.0, 2.0, 4.0, 8.0, 8.0]):
        harness.ends(AuthenticationFailed(f"failure {failure}"))
        assert f"failure {failure}" in str(harness.error())
        assert harness.next_attempt_in() == pytest.approx(pause, rel=0.2)
        harness.at(harness.now + pause * 1.2)


@pytest.mark.covers("SEC18")
def test_a_final_rejection_is_reported_at_once_and_retried_only_after_the_longest_pause(
    harness: RefresherHarness,
) -> None:
    harness.at(1000.0)
    harness.ends(AuthenticationFailed("HTTP 401", fatal=True))
    error = harness.error()
    assert isinstance(error, AuthenticationFailed)
    assert error.fatal
    assert harness.next_attempt_in() == 8.0
    harness.at(1008.0)
    harness.ends(token("token", 9000.0))
    assert harness.error() is None


@pytest.mark.covers("SEC18")
def test_a_fetch_that_takes_long_is_reported(harness: RefresherHarness) -> None:
    harness.at(1000.0)
    harness.begun.get(timeout=SECONDS)
    assert harness.error() is None
    harness.at(1000.0 + SLOW_FETCH_S)
    error = harness.error()
    assert isinstance(error, AuthenticationFailed)
    assert not error.fatal
    assert "more than 10 s" in str(error)
    harness.now += 1
    assert harness.error() is error, "the same object, so that callers report it once"


@pytest.mark.covers("SEC18")
def test_a_defect_in_a_fetch_does_not_end_the_thread_nor_show_its_text(harness: RefresherHarness) -> None:
    harness.at(1000.0)
    harness.ends(KeyError("canary"))
    assert "KeyError" in str(harness.error())
    assert "canary" not in str(harness.error())
    harness.at(1001.0)
    harness.ends(token("token", 9000.0))
    assert harness.at(1002.0)


@pytest.mark.covers("SEC18")
def test_a_token_without_an_end_is_kept(harness: RefresherHarness) -> None:
    endless = token("endless", ENDLESS)
    harness.at(1000.0)
    harness.ends(endless)
    assert harness.at(1e12) is endless
    assert harness.begun.empty()


@pytest.mark.covers("SEC19")
def test_a_refused_token_is_followed_by_a_fresh_one_just_once(harness: RefresherHarness) -> None:
    first, second, third = (token(name, 4600.0) for name in ("first", "second", "third"))
    harness.at(1000.0)
    harness.ends(first)
    assert harness.refresher.refused(first), "a fresh token may do"
    assert harness.at(1000.0) is None
    harness.ends(second)
    assert harness.refresher.refused(first), "another connection was refused with the same token"
    assert harness.at(1000.0) is second
    assert not harness.refresher.refused(second), "two fresh tokens in a row: it is not the token's age"
    assert harness.next_attempt_in() == 8.0
    harness.at(1008.0)
    harness.ends(third)
    harness.refresher.accepted(third)
    assert harness.refresher.refused(third), "a token that was taken once begins a new row"


def test_closing_ends_the_thread_and_what_is_asked_then_begins_nothing(make: Callable[..., RefresherHarness]) -> None:
    harness = make()
    harness.at(1000.0)
    harness.ends(token("token", 1100.0))
    harness.refresher.close()
    assert harness.refresher.join(SECONDS)
    assert harness.at(2000.0) is None
    assert harness.begun.empty()
    unused = make()
    unused.refresher.close()
    assert unused.at(1000.0) is None
    assert unused.begun.empty()


def test_a_listener_that_was_forgotten_is_not_called(harness: RefresherHarness) -> None:
    called: list[int] = []

    def listener() -> None:
        called.append(1)

    harness.refresher.listen(listener)
    harness.at(1000.0)
    harness.ends(AuthenticationFailed("x"))
    harness.refresher.forget(listener)
    harness.at(1001.0)
    harness.ends(AuthenticationFailed("x"))
    assert called == [1]


def test_clients_with_the_same_settings_share_a_keeper_until_the_last_one_is_gone(
    make: Callable[..., RefresherHarness],
) -> None:
    shared = TokenCache()
    benches = [make(), make(), make()]
    made = iter(benches)

    def keeper_of(secret: str, user: str) -> TokenRefresher:
        settings = replace(SETTINGS, oidc=replace(OIDC, client_secret=Secret(secret)))
        return shared.acquire((settings, ()), user, lambda: next(made).refresher)

    first, same, other = keeper_of("a", "one"), keeper_of("a", "two"), keeper_of("b", "one")
    assert first is same
    assert first is not other
    shared.release(first, "one")
    shared.release(first, "one")
    assert keeper_of("a", "three") is first
    shared.release(first, "two")
    shared.release(first, "three")
    assert benches[0].at(1000.0) is None
    assert benches[0].begun.empty(), "it is closed"
    assert keeper_of("a", "four") is benches[2].refresher


@pytest.mark.covers("SEC18")
def test_an_expired_token_is_reported_and_fetched_again_only_after_a_pause(
    make: Callable[..., RefresherHarness],
) -> None:
    harness = make()
    harness.at(1000)
    harness.ends(Token(Secret("old"), 400.0))
    assert harness.at(1000) is None
    assert "expired 600 s ago by this machine's clock" in str(harness.error())
    assert harness.begun.empty()
    harness.at(1001)
    assert harness.ends(Token(Secret("new"), 5000.0)) == 1001
    assert harness.at(1001) == Token(Secret("new"), 5000.0)
    assert harness.error() is None


@pytest.mark.covers("SEC18")
def test_tokens_that_hardly_live_are_fetched_with_pauses(make: Callable[..., RefresherHarness]) -> None:
    harness = make()
    harness.at(1000)
    harness.ends(Token(Secret("short"), 1000.01))
    for now in (1000.005, 1000.02, 1000.4):
        harness.at(now)
        with pytest.raises(Empty):
            harness.begun.get(timeout=0.05)
    harness.at(1000 + OIDC.retry_backoff)
    assert harness.ends(Token(Secret("next"), 5000.0)) == 1000 + OIDC.retry_backoff
