"""The requests about the settings of topics: DescribeConfigs and IncrementalAlterConfigs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from spark_producer.broker.context import Answer, Context
from spark_producer.broker.quoting import quoted
from spark_producer.broker.requests.admin import DEFAULT_CONFIG, TOPIC_CONFIG
from spark_producer.broker.settings import all_settings
from spark_producer.codes import Code
from spark_producer.errors import BrokerError
from spark_producer.protocol import messages

TOPIC: Final = 2
BROKER: Final = 4
"""The types of resources that have settings (Kafka's ConfigResource.Type)."""

SET: Final = 0
DELETE: Final = 1
"""The operations on a setting (AlterConfigOp.OpType)."""

_STRING, _INT, _LONG, _LIST = 2, 3, 5, 7
"""The types of settings (DescribeConfigsResponse.ConfigType)."""

_TYPES: Final = {
    "cleanup.policy": _LIST,
    "max.message.bytes": _INT,
    "min.insync.replicas": _INT,
    "retention.bytes": _LONG,
    "retention.ms": _LONG,
    "segment.bytes": _INT,
    "segment.ms": _LONG,
}
"""The types of those settings that are no strings."""


def describe_configs(
    context: Context, _version: int, request: messages.DescribeConfigsRequest
) -> Answer[messages.DescribeConfigsResponse]:
    """Answer with the settings of topics; the broker itself has none that tools could read.

    A resource that is named twice is described once.
    """
    results = [
        _describe(context, resource, request)
        for resource in {(wanted.resource_type, wanted.resource_name): wanted for wanted in request.resources}.values()
    ]
    return Answer(messages.DescribeConfigsResponse(results=tuple(results)))


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
) -> Answer[messages.IncrementalAlterConfigsResponse]:
    """Change the settings of topics: for each topic either all changes are made or none."""
    times = Counter((resource.resource_type, resource.resource_name) for resource in request.resources)
    changes: dict[str, dict[str, str | None]] = {}
    results = []
    for resource in request.resources:
        error = None
        try:
            if times[resource.resource_type, resource.resource_name] > 1:
                raise BrokerError("Each resource must appear at most once.", code=Code.INVALID_REQUEST)
            changes[resource.resource_name] = _changed(context, resource)
        except BrokerError as refused:
            error = refused
        results.append(_result(resource, error))
    if changes and not request.validate_only:
        try:
            context.topics.alter_all(changes)
        except BrokerError as error:
            results = [
                _result(resource, error) if result.error_code == Code.NONE else result
                for resource, result in zip(request.resources, results, strict=True)
            ]
    return Answer(messages.IncrementalAlterConfigsResponse(responses=tuple(results)))


def _result(
    resource: messages.AlterConfigsResource, error: BrokerError | None
) -> messages.AlterConfigsResourceResponse:
    code, text = (Code.NONE, None) if error is None else (error.code, str(error))
    return messages.AlterConfigsResourceResponse(code, text, resource.resource_type, resource.resource_name)


def _changed(context: Context, resource: messages.AlterConfigsResource) -> dict[str, str | None]:
    """Return all settings that the topic would be given. The checks are those of Kafka's ConfigAdminManager."""
    _check_topic(resource.resource_type)
    names = [config.name for config in resource.configs]
    if len(set(names)) < len(names):
        raise BrokerError("Error due to duplicate config keys", code=Code.INVALID_REQUEST)
    given = dict(context.topics.settings_of(resource.resource_name)[1])
    changed: dict[str, str | None] = {}
    for config in resource.configs:
        if config.config_operation == DELETE:
            given.pop(config.name, None)
        elif config.config_operation != SET:
            raise BrokerError(
                f"operation {config.config_operation} on {quoted(config.name)}: only set (0) and delete (1) are possible, "
                "since no setting of the embedded broker is a list that may grow",
                code=Code.INVALID_REQUEST,
            )
        elif config.value is None:
            raise BrokerError(f"Null value not supported for : {quoted(config.name)}", code=Code.INVALID_REQUEST)
        else:
            changed[config.name] = config.value
    context.topics.check_configs(changed)
    return given | changed


def _check_topic(resource_type: int) -> None:
    if resource_type != TOPIC:
        raise BrokerError(
            f"resource type {resource_type}: the embedded broker has settings of topics ({TOPIC}) only",
            code=Code.INVALID_REQUEST,
        )


def _check_broker(context: Context, name: str) -> None:
    if name not in ("", str(context.settings.node_id)):
        raise BrokerError(
            f"broker {quoted(name)} is not this one, {context.settings.node_id}", code=Code.INVALID_REQUEST
        )
