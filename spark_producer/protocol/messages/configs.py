"""The messages about settings: DescribeConfigs, AlterConfigs and IncrementalAlterConfigs."""

# Annotations are evaluated here on purpose (no `from __future__`): they are the schema.
from typing import Annotated, NamedTuple

from spark_producer.protocol.fields import Bool, Int8, Int16, Int32, NullableString, Since, String

# DescribeConfigs (32)


class DescribeConfigsResource(NamedTuple):
    """A resource to describe; `resource_type` 2 is a topic, 4 a broker. `configuration_keys` None asks for all settings."""

    resource_type: Int8 = 0
    resource_name: String = ""
    configuration_keys: tuple[String, ...] | None = ()


class DescribeConfigsRequest(NamedTuple):
    """Asks for the settings of some resources."""

    resources: tuple[DescribeConfigsResource, ...] = ()
    include_synonyms: Annotated[Bool, Since(1)] = False
    include_documentation: Annotated[Bool, Since(3)] = False


class DescribeConfigsSynonym(NamedTuple):
    """A value of the setting with its source; the one that applies comes first."""

    name: String = ""
    value: NullableString = None
    source: Int8 = 0


class DescribeConfigsResourceResult(NamedTuple):
    """One setting. `config_source` 1 was set for the topic, 5 is a default (ConfigSource)."""

    name: String = ""
    value: NullableString = None
    read_only: Bool = False
    config_source: Annotated[Int8, Since(1)] = -1
    is_sensitive: Bool = False
    synonyms: Annotated[tuple[DescribeConfigsSynonym, ...], Since(1)] = ()
    config_type: Annotated[Int8, Since(3)] = 0
    documentation: Annotated[NullableString, Since(3)] = None


class DescribeConfigsResult(NamedTuple):
    """The settings of one resource, or the reason why there are none."""

    error_code: Int16 = 0
    error_message: NullableString = None
    resource_type: Int8 = 0
    resource_name: String = ""
    configs: tuple[DescribeConfigsResourceResult, ...] = ()


class DescribeConfigsResponse(NamedTuple):
    """One result for each resource."""

    throttle_time_ms: Int32 = 0
    results: tuple[DescribeConfigsResult, ...] = ()


# AlterConfigs (33)


class ReplacedConfig(NamedTuple):
    """The new value of one setting."""

    name: String = ""
    value: NullableString = None


class ReplacedConfigsResource(NamedTuple):
    """The new settings of one resource: settings that are not named get their defaults."""

    resource_type: Int8 = 0
    resource_name: String = ""
    configs: tuple[ReplacedConfig, ...] = ()


class AlterConfigsRequest(NamedTuple):
    """Replaces the settings of resources, or only checks whether they could be replaced."""

    resources: tuple[ReplacedConfigsResource, ...] = ()
    validate_only: Bool = False


class AlterConfigsResourceResponse(NamedTuple):
    """The result for one resource: error code 0 if its settings were changed."""

    error_code: Int16 = 0
    error_message: NullableString = None
    resource_type: Int8 = 0
    resource_name: String = ""


class AlterConfigsResponse(NamedTuple):
    """One result for each resource."""

    throttle_time_ms: Int32 = 0
    responses: tuple[AlterConfigsResourceResponse, ...] = ()


# IncrementalAlterConfigs (44)


class AlterableConfig(NamedTuple):
    """One change. `config_operation` is 0 to set, 1 to delete, 2 to append to a list, and 3 to subtract from it."""

    name: String = ""
    config_operation: Int8 = 0
    value: NullableString = None


class AlterConfigsResource(NamedTuple):
    """The changes of one resource."""

    resource_type: Int8 = 0
    resource_name: String = ""
    configs: tuple[AlterableConfig, ...] = ()


class IncrementalAlterConfigsRequest(NamedTuple):
    """Changes settings one by one, or only checks whether they could be changed (KIP-339)."""

    resources: tuple[AlterConfigsResource, ...] = ()
    validate_only: Bool = False


class IncrementalAlterConfigsResponse(NamedTuple):
    """One result for each resource."""

    throttle_time_ms: Int32 = 0
    responses: tuple[AlterConfigsResourceResponse, ...] = ()
