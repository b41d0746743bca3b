"""Logins by tokens, the whole way: an OAuth server gives them, a producer fetches them, the embedded broker judges them."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from spark_producer import Producer
from spark_producer.broker import LocalBroker
from spark_producer.broker.security.settings import BrokerSecurity
from spark_producer.errors import AuthenticationFailed
from tests.fakes.token_endpoint import Asked, Reply, TokenEndpoint, token_reply

CANARY = "canary-of-this-test"
SECONDS = 60.0


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LocalBroker]:
    security = BrokerSecurity("SASL_PLAINTEXT", mechanisms=("OAUTHBEARER",), max_session_ms=1000)
    with LocalBroker(tmp_path, security=security) as served:
        yield served


def written(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def token_for(seconds: float) -> str:
    """An unsigned token whose life ends that far from now."""
    return f"{written({'alg': 'none'})}.{written({'sub': 'app', 'exp': time.time() + seconds})}."


def write(broker: LocalBroker, answer: Callable[[Asked], Reply], seconds: float = 0.0, tokens: int = 0) -> int:
    """Write rows for `seconds` and until `answer` has given `tokens` tokens. Return how many tokens it has given."""
    with TokenEndpoint(answer) as endpoint:
        options = {
            "bootstrap.servers": broker.bootstrap_servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": endpoint.url,
            "sasl.oauthbearer.client.credentials.client.id": "client",
            "sasl.oauthbearer.client.credentials.client.secret": CANARY,
        }
        end = time.monotonic() + seconds
        with Producer(options) as producer:
            while True:
                batch = pa.RecordBatch.from_arrays([pa.array([b"row"], pa.binary())], ["value"])
                producer.send_batch(batch, topic="rows")
                producer.flush()
                now = time.monotonic()
                assert now < end + SECONDS, f"there were {len(endpoint.asked)} tokens"
                if now >= end and len(endpoint.asked) >= tokens:
                    return len(endpoint.asked)


@pytest.mark.covers("SEC18")
def test_a_producer_fetches_a_token_and_uses_it_again_for_every_login(broker: LocalBroker) -> None:
    assert write(broker, lambda _: token_reply(token_for(3600)), seconds=2.5) == 1


@pytest.mark.covers("SEC18")
def test_tokens_that_live_shortly_are_replaced_while_rows_are_written(broker: LocalBroker) -> None:
    assert write(broker, lambda _: token_reply(token_for(1.5), expires_in=None), tokens=3) >= 3


@pytest.mark.covers("SEC19")
def test_a_token_that_the_broker_refuses_is_replaced_once(broker: LocalBroker) -> None:
    lives = iter([-10, 3600])
    assert write(broker, lambda _: token_reply(token_for(next(lives)))) == 2


@pytest.mark.covers("SEC19")
def test_a_second_refusal_ends_the_wait_and_says_what_the_clocks_say(broker: LocalBroker) -> None:
    lives = [-10, -10]
    with pytest.raises(AuthenticationFailed) as refused:
        write(broker, lambda _: token_reply(token_for(lives.pop())))
    assert refused.value.fatal
    assert "invalid_token" in str(refused.value)
    assert "By this machine's clock the token expires in" in str(refused.value)
    assert not lives


@pytest.mark.covers("SEC17")
def test_an_endpoint_that_refuses_the_client_ends_the_wait(broker: LocalBroker) -> None:
    with pytest.raises(AuthenticationFailed, match=r"HTTP 401: invalid_client") as refused:
        write(broker, lambda _: Reply(401, (b'{"error":"invalid_client"}',)))
    assert CANARY not in str(refused.value)
