"""Tokens: when they end, and when the next one is due, as in Kafka's ExpiringCredentialRefreshingLogin."""

from __future__ import annotations

import base64
import json
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_producer.common.secret import Secret
from spark_producer.security.settings import SaslSettings
from spark_producer.security.token import ENDLESS, Token, jwt_expiry, next_refresh, parse_seconds, token_problem

DEFAULTS = SaslSettings("OAUTHBEARER")
NOW = 1_700_000_000.0


@pytest.mark.covers("SEC18")
@pytest.mark.parametrize(
    ("life", "chance", "expected"),
    [
        (3600, 0.0, 2880),
        (3600, 1.0, 3060),
        (3600, 0.5, 2970),
        (1000, 0.0, 700),  # not in the last five minutes
        (360, 0.0, 60),  # not in the first one
        (400, 1.0, 100),
        (359, 0.0, 359 * 0.8),  # too short for both
        (60, 1.0, 60 * 0.85),
        (0, 1.0, 0),
        (-10, 0.5, -10 * 0.825),
        (ENDLESS, 0.5, ENDLESS),
    ],
)
def test_the_next_token_is_due_as_in_kafka(life: float, chance: float, expected: float) -> None:
    assert next_refresh(DEFAULTS, NOW + life, NOW, chance) == pytest.approx(NOW + expected, abs=1e-3)


@pytest.mark.covers("SEC18")
def test_the_settings_say_when() -> None:
    settings = replace(
        DEFAULTS, refresh_window_factor=0.5, refresh_window_jitter=0.2, refresh_min_period=10.0, refresh_buffer=20.0
    )
    assert next_refresh(settings, NOW + 100, NOW, 0.0) == NOW + 50
    assert next_refresh(settings, NOW + 100, NOW, 1.0) == pytest.approx(NOW + 70)


@pytest.mark.covers("SEC18")
@given(st.floats(0.001, 1e8), st.floats(0, 1))
def test_the_next_token_comes_before_the_old_one_ends(life: float, chance: float) -> None:
    due = next_refresh(DEFAULTS, NOW + life, NOW, chance)
    assert NOW <= due <= NOW + life


def jwt(claims: object, padding: str = "") -> Secret:
    middle = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=") + padding
    return Secret(f"e30.{middle}.c2lnbmF0dXJl")


@pytest.mark.covers("SEC18")
@pytest.mark.parametrize(
    ("text", "end"),
    [
        (jwt({"exp": NOW}), NOW),
        (jwt({"exp": str(int(NOW))}), NOW),
        (jwt({"exp": NOW + 0.5, "sub": "ä"}), NOW + 0.5),
        (jwt({"sub": "x"}), ENDLESS),
        (jwt({"exp": None}), ENDLESS),
        (jwt({"exp": True}), ENDLESS),
        (jwt({"exp": [1]}), ENDLESS),
        (jwt({"exp": -1}), -1),
        (jwt([1]), ENDLESS),
        (Secret("opaque"), ENDLESS),
        (Secret("a.b.c"), ENDLESS),
        (Secret("a.b.c.d"), ENDLESS),
        (Secret("e30.!!!!.x"), ENDLESS),
        (Secret(""), ENDLESS),
    ],
)
def test_a_jwt_says_when_it_ends(text: Secret, end: float) -> None:
    assert jwt_expiry(text) == end


@pytest.mark.covers("SEC18")
def test_a_jwt_that_is_nested_deeply_says_nothing() -> None:
    nested = base64.urlsafe_b64encode(b"[" * 100_000).decode()
    assert jwt_expiry(Secret(f"e30.{nested}.x")) == ENDLESS


@given(st.text(max_size=50), st.text(max_size=50))
def test_anything_may_stand_in_a_jwt(head: str, middle: str) -> None:
    assert not math.isnan(jwt_expiry(Secret(f"{head}.{middle}.x")))


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (1, 1),
        ("7", 7),
        (" 7 ", 7),
        (0, 0),
        ("-5", -5),
        ("x", None),
        (True, None),
        ([7], None),
        (10**400, math.inf),
        ("1e999", math.inf),
    ],
)
def test_seconds_are_numbers_or_digits(value: object, number: float | None) -> None:
    assert parse_seconds(value) == number
    assert math.isnan(parse_seconds(math.nan) or 0)


@pytest.mark.parametrize(
    ("exp", "end"), [(0, 0), (-5, -5), ("7", 7), (math.nan, ENDLESS), (10**400, ENDLESS), (None, ENDLESS)]
)
def test_a_jwt_that_ended_before_all_clocks_has_ended(exp: object, end: float) -> None:
    claims = base64.urlsafe_b64encode(json.dumps({"exp": exp}).encode()).decode()
    assert jwt_expiry(Secret(f"e30.{claims}.x")) == end


@pytest.mark.parametrize("text", ["abc", "a.b-c_d~e+f/g", "abc==", "A" * 10_000])
def test_tokens_that_can_be_sent(text: str) -> None:
    assert token_problem(Secret(text)) == ""


@pytest.mark.covers("SEC42")
def test_a_token_shows_nothing() -> None:
    assert "canary" not in repr(Token(Secret("canary"), NOW))
