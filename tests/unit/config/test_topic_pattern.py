"""Patterns of topics: the syntax that Java and Python share, and nothing else. Ids (tests/ids.md): RD.

tests/spark/test_source_options.py compares with Java.
"""

from __future__ import annotations

import pickle
import re
import warnings

import pytest

from spark_producer.config.subscription import SubscribePattern
from spark_producer.config.topic_pattern import check_pattern
from spark_producer.errors import ConfigError
from tests.unit.config.topic_patterns import NAMES, SHARED, UNSHARED, WRONG, random_patterns


@pytest.mark.parametrize("pattern", [pattern for pattern in SHARED if pattern])
def test_a_shared_construct_is_taken(pattern: str) -> None:
    check_pattern("subscribePattern", pattern)


@pytest.mark.covers("RD2")
@pytest.mark.parametrize("pattern", UNSHARED)
def test_an_unshared_construct_is_refused_by_name(pattern: str) -> None:
    with pytest.raises(ConfigError) as raised:
        check_pattern("subscribePattern", pattern)
    assert str(raised.value).startswith(f"subscribePattern has {UNSHARED[pattern]}")
    assert "which Java and Python do not read alike. Write the pattern without it" in str(raised.value)


@pytest.mark.covers("RD2")
@pytest.mark.parametrize("pattern", WRONG)
def test_what_is_no_regular_expression_is_refused(pattern: str) -> None:
    with pytest.raises(
        ConfigError, match=f"^subscribePattern is not a regular expression: .*{re.escape(repr(pattern))}"
    ):
        check_pattern("subscribePattern", pattern)


def test_the_place_of_a_construct_is_named() -> None:
    with pytest.raises(ConfigError, match=r"\(\\p\{…\}\) at character 8 of 'orders-\\\\p\{L\}'"):
        check_pattern("subscribePattern", "orders-\\p{L}")


def test_a_star_as_of_file_names_is_explained() -> None:
    with pytest.raises(ConfigError, match=r"In a regular expression \.\* stands for any text"):
        check_pattern("subscribePattern", "*-orders")


def test_any_text_is_taken_or_refused_and_nothing_else() -> None:
    """Python warns of classes that it may read as sets one day: none of these is taken."""
    taken = 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for pattern in random_patterns(5_000, seed=1):
            try:
                check_pattern("subscribePattern", pattern)
            except ConfigError:
                continue
            taken += 1
            assert isinstance(SubscribePattern(pattern).matches("orders"), bool)
    assert taken > 500


def test_a_pattern_is_found_anywhere_in_a_name() -> None:
    """As in Spark since 3.4; Kafka's own consumer compares whole names."""
    assert [name for name in NAMES if SubscribePattern("orders").matches(name)] == ["orders", "orders.x"]
    assert [name for name in NAMES if SubscribePattern("^orders$").matches(name)] == ["orders"]
    assert SubscribePattern("(?i)^orders").matches("Orders-1")


def test_a_subscription_travels() -> None:
    assert pickle.loads(pickle.dumps(SubscribePattern("a.*"))) == SubscribePattern("a.*")
