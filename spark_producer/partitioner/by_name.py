"""The rules that `partitioner.class` can name: Kafka's classes, short names, librdkafka's names, functions."""

from __future__ import annotations

import difflib
import random
from collections.abc import Callable
from typing import NamedTuple

from spark_producer.config import ProducerConfig
from spark_producer.errors import ConfigError
from spark_producer.partitioner.assign import Partitioner
from spark_producer.partitioner.custom import CustomPartitioner, PartitionFunction, load_function
from spark_producer.partitioner.key_hash import JAVA, LIBRDKAFKA, KeyRule
from spark_producer.partitioner.round_robin import RoundRobinPartitioner
from spark_producer.partitioner.sticky import StickyPartitioner
from spark_producer.partitioner.topic import LoadView, RowRule
from spark_producer.partitioner.uniform_sticky import UniformStickyPartitioner

_JAVA = "org.apache.kafka.clients.producer."

RuleMaker = Callable[[ProducerConfig, LoadView | None, random.Random | None], RowRule]


class PartitionerRules(NamedTuple):
    """The rule for rows with a key (None: they count as rows without a key), and the factory of the rule for the others."""

    keys: KeyRule | None
    others: RuleMaker
    java_class: str = ""


def _uniform_sticky(config: ProducerConfig, load: LoadView | None, choose: random.Random | None) -> RowRule:
    adaptive = config.partitioner_adaptive_partitioning_enable
    return UniformStickyPartitioner(_filling(config), adaptive=adaptive, load=load, choose=choose)


def _sticky(config: ProducerConfig, load: LoadView | None, choose: random.Random | None) -> RowRule:
    return StickyPartitioner(_filling(config), load=load, choose=choose)


def _round_robin(_config: ProducerConfig, _load: LoadView | None, choose: random.Random | None) -> RowRule:
    return RoundRobinPartitioner(random_start=False, choose=choose)


def _round_robin_anywhere(_config: ProducerConfig, _load: LoadView | None, choose: random.Random | None) -> RowRule:
    return RoundRobinPartitioner(random_start=True, choose=choose)


def _filling(config: ProducerConfig) -> int:
    """Return the bytes that fill a batch. As in Java, with a batch size of 0 every record fills one."""
    return max(1, config.batch_size)


CHOICES: dict[str, PartitionerRules] = {
    "uniform_sticky": PartitionerRules(JAVA, _uniform_sticky, _JAVA + "internals.BuiltInPartitioner"),
    "sticky": PartitionerRules(JAVA, _sticky, _JAVA + "internals.DefaultPartitioner"),
    "sticky_without_keys": PartitionerRules(None, _sticky, _JAVA + "UniformStickyPartitioner"),
    "round_robin": PartitionerRules(None, _round_robin, _JAVA + "RoundRobinPartitioner"),
    "round_robin_with_keys": PartitionerRules(JAVA, _round_robin_anywhere),
    **{name: PartitionerRules(rule, _uniform_sticky) for name, rule in LIBRDKAFKA.items()},
}
"""Short name → rules. Java's `DefaultPartitioner` was `round_robin_with_keys` up to 2.3 and `sticky` from 2.4 on; its
`UniformStickyPartitioner` is the sticky rule of KIP-480 that ignores keys, in spite of its name."""

_BY_JAVA_NAME = {
    name.lower(): short
    for short, choice in CHOICES.items()
    if choice.java_class
    for name in (choice.java_class, choice.java_class.rpartition(".")[2])
}


def resolve_partitioner(name: str) -> PartitionerRules | PartitionFunction:
    """Return the rules that `partitioner.class` names; `module:function` is imported.

    Raises:
        ConfigError: there is no such name (the message has the nearest one), or the function cannot be loaded.
    """
    lower = name.lower()
    short = _BY_JAVA_NAME.get(lower, lower)
    if short in CHOICES:
        return CHOICES[short]
    if ":" in name:
        return load_function(name)
    known = {**dict.fromkeys(CHOICES), **{choice.java_class.rpartition(".")[2]: None for choice in CHOICES.values()}}
    by_lower = {item.lower(): item for item in known if item}
    near = difflib.get_close_matches(lower.rpartition(".")[2], by_lower, n=1, cutoff=0.6)
    hint = f" Did you mean {by_lower[near[0]]!r}?" if near else ""
    raise ConfigError(
        f"unknown kafka.partitioner.class {name!r}.{hint} There are {', '.join(CHOICES)}, Java's names of these, and "
        "module:function for a Python function over columns; Java classes cannot run here"
    )


def make_partitioner(
    config: ProducerConfig,
    load: LoadView | None = None,
    choice: PartitionerRules | PartitionFunction | None = None,
    choose: random.Random | None = None,
) -> Partitioner:
    """Return the partitioner of a producer. `choice` overrides `partitioner.class`.

    Without `load`, the lengths of queues are ignored. `choose` is the source of random numbers; None for a new one.

    Raises:
        ConfigError: as `resolve_partitioner`.
    """
    choice = choice or resolve_partitioner(config.partitioner_class)
    if not isinstance(choice, PartitionerRules):
        return Partitioner(None, CustomPartitioner(choice))
    return Partitioner(None if config.partitioner_ignore_keys else choice.keys, choice.others(config, load, choose))
