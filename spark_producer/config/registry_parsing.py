"""Parses the options of a Schema Registry where they come alone, into checked values."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from spark_producer.config.option_lookup import OptionTables
from spark_producer.config.registry_table import CONNECTION_FIELDS, RegistryOptions, check_connection

_TABLES = OptionTables((RegistryOptions, CONNECTION_FIELDS, str))
_ALLOW = "secretsAllow"


def parse_registry_options(options: Mapping[str, object]) -> tuple[RegistryOptions, tuple[str, ...]]:
    """Return the options of a registry, and the rules for references to secrets, from `secretsAllow`.

    Raises:
        ConfigError: a name is unknown, a value is bad, or there is no address.
    """
    rules = [str(value) for name, value in options.items() if name.lower() == _ALLOW.lower()]
    given = _TABLES.redacted({name: value for name, value in options.items() if name.lower() != _ALLOW.lower()})
    _TABLES.refuse_none(given)
    registry = RegistryOptions(**_TABLES.values(given, _explain)[RegistryOptions])
    check_connection(registry)
    return registry, tuple(rule.strip() for rule in ",".join(rules).split(",") if rule.strip())


def _explain(raw: str) -> str:
    near = difflib.get_close_matches(raw, [*CONNECTION_FIELDS, _ALLOW], n=1, cutoff=0.6)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return f"a Schema Registry has no option {raw!r}.{hint} See docs/avro.md"
