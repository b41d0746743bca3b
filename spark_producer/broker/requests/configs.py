"""The handlers of DescribeConfigs, AlterConfigs and IncrementalAlterConfigs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

from spark_producer.broker.context import Context, HandlerResult
from spark_producer.broker.log_quoting import quoted
from spark_producer.broker.requests.topics import DEFAULT_CONFIG, TOPIC_CONFIG
from spark_producer.broker.settings import all_settings
from spark_producer.common.error_codes import Code
from spark_producer.errors import BrokerError
from spark_producer.protocol import messages

TOPIC: Final = 2
BROKER: Final = 4
"""The resource types with settings (Kafka's ConfigResource.Type)."""

SET: Final = 0
DELETE: Final = 1
APPEND: Final = 2
SUBTRACT: Final = 3
"""The operations on a setting (AlterConfigOp.OpType); the last two are for lists."""

_STRING, _INT, _LONG, _DOUBLE, _LIST = 2, 3, 5, 6, 7
"""The types of settings (DescribeConfigsResponse.ConfigType)."""

_TYPES: Final = {
    "cleanup.policy": _LIST,
    "delete.retention.ms": _LONG,
    "max.compaction.lag.ms": _LONG,
    "max.message.bytes": _INT,
    "min.cleanable.dirty.ratio": _DOUBLE,
    "min.compaction.lag.ms": _LONG,
    "min.insync.replicas": _INT,
    "retention.bytes": _LONG,
    "retention.ms": _LONG,
    "segment.bytes": _INT,
    "segment.ms": _LONG,
}
"""The types of settings other than strings."""


def describe_configs(
    context: Context, _version: int, request: messages.DescribeConfigsRequest
) -> HandlerResult[messages.DescribeConfigsResponse]:
    """Return the settings of topics; the broker itself has none in this API.

    A repeated resource is described once.
    """
    results = [
        _describe(context, resource, request)
        for resource in {(wanted.resource_type, wanted.resource_name): wanted for wanted in request.resources}.values()
    ]
    return HandlerResult(messages.DescribeConfigsResponse(results=tuple(results)))


def _describe(
    context: Context, wanted: messages.DescribeConfigsResource, request: messages.DescribeConfigsRequest
) -> messages.DescribeConfigsResult:
    described = messages.DescribeConfigsResult(resource_type=wanted.resource_type, resource_name=wanted.resource_name)
    try:
        if wanted.resource_type == BROKER:
            _check_broker(context, wanted.resource_name)
            return described
        _check_topic(wanted.resource_type)
        settings, given = context.topics.settings_of(wanted.resource_name)
    except BrokerError as error:
        return described._replace(error_code=error.code, error_message=str(error))
    keys = None if wanted.configuration_keys is None else frozenset(wanted.configuration_keys)
    defaults = all_settings(context.settings.topic)
    configs = tuple(
        _setting(name, value, given, defaults[name], synonyms=request.include_synonyms)
        for name, value in all_settings(settings).items()
        if keys is None or name in keys
    )
    return described._replace(configs=configs)


def _setting(
    name: str, value: str, given: Mapping[str, str | None], default: str, *, synonyms: bool
) -> messages.DescribeConfigsResourceResult:
    own = [messages.DescribeConfigsSynonym(name, value, TOPIC_CONFIG)] if name in given else []
    return messages.DescribeConfigsResourceResult(
        name,
        value,
        config_source=TOPIC_CONFIG if own else DEFAULT_CONFIG,
        synonyms=(*own, messages.DescribeConfigsSynonym(name, default, DEFAULT_CONFIG)) if synonyms else (),
        config_type=_TYPES.get(name, _STRING),
    )


def incremental_alter_configs(
    context: Context, _version: int, request: messages.IncrementalAlterConfigsRequest
) -> HandlerResult[messages.IncrementalAlterConfigsResponse]:
    """Change settings of topics: all changes of a topic are made, or none."""
    results = _altered(context, request.resources, _changed, validate_only=request.validate_only)
    return HandlerResult(messages.IncrementalAlterConfigsResponse(responses=results))


def alter_configs(
    context: Context, _version: int, request: messages.AlterConfigsRequest
) -> HandlerResult[messages.AlterConfigsResponse]:
    """Replace the settings of topics: missing ones return to their defaults, as in the first versions of this API."""
    results = _altered(context, request.resources, _replaced, validate_only=request.validate_only)
    return HandlerResult(messages.AlterConfigsResponse(responses=results))


_Resource = TypeVar("_Resource", messages.AlterConfigsResource, messages.ReplacedConfigsResource)


def _altered(
    context: Context,
    resources: Sequence[_Resource],
    new_settings: Callable[[Context, _Resource], dict[str, str | None]],
    *,
    validate_only: bool,
) -> tuple[messages.AlterConfigsResourceResponse, ...]:
    """Set the settings of each resource to those of `new_settings`; return the results in the order of the resources."""
    times = Counter((resource.resource_type, resource.resource_name) for resource in resources)
    changes: dict[str, dict[str, str | None]] = {}
    results = []
    for resource in resources:
        error = None
        try:
            if times[resource.resource_type, resource.resource_name] > 1:
                raise BrokerError("Each resource must appear at most once.", code=Code.INVALID_REQUEST)
            changes[resource.resource_name] = new_settings(context, resource)
        except BrokerError as refused:
            error = refused
        results.append(_result(resource, error))
    if changes and not validate_only:
        try:
            context.topics.alter_all(changes)
        except BrokerError as error:
            results = [
                _result(resource, error) if result.error_code == Code.NONE else result
                for resource, result in zip(resources, results, strict=True)
            ]
    return tuple(results)


def _result(
    resource: messages.AlterConfigsResource | messages.ReplacedConfigsResource, error: BrokerError | None
) -> messages.AlterConfigsResourceResponse:
    code, text = (Code.NONE, None) if error is None else (error.code, str(error))
    return messages.AlterConfigsResourceResponse(code, text, resource.resource_type, resource.resource_name)


def _checked_names(context: Context, resource: _Resource) -> dict[str, str | None]:
    """Return the given settings of the topic. The checks are those of Kafka's ConfigAdminManager."""
    _check_topic(resource.resource_type)
    names = [config.name for config in resource.configs]
    if len(set(names)) < len(names):
        raise BrokerError("Error due to duplicate config keys", code=Code.INVALID_REQUEST)
    return dict(context.topics.settings_of(resource.resource_name)[1])


def _replaced(context: Context, resource: messages.ReplacedConfigsResource) -> dict[str, str | None]:
    """Return all settings that the topic would be given."""
    given = _checked_names(context, resource)
    wanted: dict[str, str | None] = {config.name: _not_null(config.name, config.value) for config in resource.configs}
    # A stored value that only an older broker accepted may stay.
    context.topics.check_configs({name: value for name, value in wanted.items() if given.get(name) != value})
    return wanted


def _not_null(name: str, value: str | None) -> str:
    if value is None:
        raise BrokerError(f"Null value not supported for : {quoted(name)}", code=Code.INVALID_REQUEST)
    return value


def _changed(context: Context, resource: messages.AlterConfigsResource) -> dict[str, str | None]:
    """Return all settings that the topic would be given."""
    given = _checked_names(context, resource)
    changed: dict[str, str | None] = {}
    for config in resource.configs:
        if config.config_operation == DELETE:
            given.pop(config.name, None)
            continue
        value = _not_null(config.name, config.value)
        if config.config_operation in (APPEND, SUBTRACT):
            now = all_settings(context.topics.settings_of(resource.resource_name)[0]).get(config.name)
            value = _list_value(config.name, now, value, grows=config.config_operation == APPEND)
        elif config.config_operation != SET:
            raise BrokerError(
                f"operation {config.config_operation} on {quoted(config.name)}: only set (0), delete (1), append (2) and "
                "subtract (3) are supported",
                code=Code.INVALID_REQUEST,
            )
        changed[config.name] = value
    context.topics.check_configs(changed)
    return given | changed


def _list_value(name: str, now: str | None, value: str, *, grows: bool) -> str:
    """Return a list setting with the elements of `value` added or removed (ConfigurationControlManager)."""
    if _TYPES.get(name) != _LIST or now is None:
        what = "append" if grows else "subtract"
        raise BrokerError(f"Can't {what} to key {quoted(name)} because its type is not LIST.", code=Code.INVALID_CONFIG)
    old, named = now.split(","), value.split(",")
    found = (
        [*old, *(each for each in named if each not in old)] if grows else [each for each in old if each not in named]
    )
    return ",".join(found)


def _check_topic(resource_type: int) -> None:
    if resource_type != TOPIC:
        raise BrokerError(
            f"resource type {resource_type} is not supported: the embedded broker has only topic settings ({TOPIC})",
            code=Code.INVALID_REQUEST,
        )


def _check_broker(context: Context, name: str) -> None:
    if name not in ("", str(context.settings.node_id)):
        raise BrokerError(
            f"there is no broker {quoted(name)}: this is broker {context.settings.node_id}", code=Code.INVALID_REQUEST
        )
