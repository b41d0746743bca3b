"""The table of options: names, ranges, contradictions, documentation. Ids (tests/ids.md): KP."""

from __future__ import annotations

import dataclasses
import pickle
import re

import pytest

from spark_producer.config import (
    CONSUMER_FIELDS,
    KAFKA_FIELDS,
    ProducerConfig,
    SinkOptions,
    SourceOptions,
    camel_case,
    connection_table,
    idempotent,
    kafka_name,
    parse_options,
    producer_config,
)
from spark_producer.config.docs_table import option_rows, render_markdown
from spark_producer.config.names import Fields
from spark_producer.config.option import is_secret, parse_value
from spark_producer.config.registry_table import REGISTRY_FIELDS
from spark_producer.config.unsupported import UNSUPPORTED
from spark_producer.errors import ConfigError
from spark_producer.record.codecs import DEFAULT_LEVELS, Codec
from tests.unit.config.options import SERVERS, refused
from tests.unit.test_layout import PACKAGE

FIELDS = dataclasses.fields(ProducerConfig)
NUMBERS = [field for field in FIELDS if field.type == "int"]
IN_STEP = {"linger_ms": 0, "delivery_timeout_ms": 2**31 - 1, "request_timeout_ms": 1, "batch_size": 1024}
"""Values with which any other option may go to its bounds."""
TOKENS = {
    "security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER", "sasl_oauthbearer_token_provider": "my.tokens:get",
}  # fmt: skip
TICKETS = {"security_protocol": "SASL_SSL", "sasl_mechanism": "GSSAPI", "sasl_kerberos_service_name": "kafka"}
"""Options without which those of logins have no effect."""


def config(**kafka: object) -> ProducerConfig:
    return producer_config(
        {"bootstrap.servers": "broker:9092"} | {kafka_name(name): value for name, value in kafka.items()}
    )


# --- names ----------------------------------------------------------------------------------------------------------


def test_options_arrive_in_any_case_and_as_text() -> None:
    parsed, sink = parse_options(
        {"KAFKA.Bootstrap.Servers": "a:1,b:2", "kafka.BATCH.size": " 4096 ", "TOPIC": "t", "includeheaders": "FALSE"}
    )
    assert (parsed.bootstrap_servers, parsed.batch_size) == ("a:1,b:2", 4096)
    assert sink == SinkOptions(topic="t", include_headers=False)


def test_sparks_own_options_pass() -> None:
    assert parse_options(SERVERS | {"checkpointLocation": "/x", "queryName": "q"})[0].bootstrap_servers == "broker:9092"


@pytest.mark.covers("KP19")
@pytest.mark.parametrize(
    ("option", "hint"),
    [
        ("kafka.batch.sise", "Did you mean 'kafka.batch.size'?"),
        ("kafka.lingerms", "Did you mean 'kafka.linger.ms'?"),
        ("batch.size", "have the prefix `kafka.`. Did you mean 'kafka.batch.size'?"),
        ("kafka.kafka.batch.size", "the prefix `kafka.` is repeated. Write 'kafka.batch.size'"),
        ("bootstrap.servers", "Did you mean 'kafka.bootstrap.servers'?"),
        ("topics", "Did you mean 'topic'?"),
        ("includeHeader", "Did you mean 'includeHeaders'?"),
        ("zzzzzz", "`pyproducer options` lists them all"),
        ("path", 'save() and start() take no path. Name the topic with .option("topic", …)'),
    ],
)
def test_an_unknown_option_is_an_error_with_the_nearest_name(option: str, hint: str) -> None:
    refused(SERVERS | {option: "1"}, hint)


@pytest.mark.covers("KP4")
@pytest.mark.parametrize("name", UNSUPPORTED)
def test_a_known_option_that_has_no_place_says_why(name: str) -> None:
    for option in (f"kafka.{name}", name):
        refused(SERVERS | {option: "x"}, "is not supported", UNSUPPORTED[name])


def test_refused_names_are_not_options() -> None:
    assert not set(UNSUPPORTED) & {kafka_name(field.name) for field in FIELDS}


def test_the_one_way_of_looking_up_names_may_be_named() -> None:
    assert config(client_dns_lookup="use_all_dns_ips") == config()
    refused(SERVERS | {"kafka.client.dns.lookup": "resolve_canonical_bootstrap_servers_only"}, "Kerberos")


# --- values ---------------------------------------------------------------------------------------------------------


def test_the_servers_are_required() -> None:
    refused(
        {}, "kafka.bootstrap.servers is not set", '.option("kafka.bootstrap.servers"', 'Producer {"bootstrap.servers"'
    )
    refused({"kafka.bootstrap.servers": "  "}, "kafka.bootstrap.servers is empty")


@pytest.mark.covers("KP5")
@pytest.mark.parametrize("field", NUMBERS, ids=lambda field: field.name)
def test_numbers_have_bounds_and_the_bounds_are_legal(field: dataclasses.Field[int]) -> None:
    option = field.metadata["option"]
    name = f"kafka.{kafka_name(field.name)}"
    base: dict[str, object] = {key: value for key, value in IN_STEP.items() if key != field.name}
    for value in (option.low, option.high):
        loose = base | {"buffer_memory": 2**63 - 1} if field.name == "batch_size" else base
        loose = loose | {"enable_idempotence": False}
        if field.name.startswith("sasl_"):
            loose |= TICKETS if field.name.startswith("sasl_kerberos_") else TOKENS
        if field.name in ("linger_ms", "request_timeout_ms", "delivery_timeout_ms"):
            continue  # their bounds depend on each other, see below
        assert getattr(config(**(loose | {field.name: value})), field.name) == value
    for value in (option.low - 1, option.high + 1):
        refused(SERVERS | {name: str(value)}, f"{name} must lie between {option.low} and {option.high}, not {value}")
    for text in ("", "many", "1.5", "0x10"):
        refused(SERVERS | {name: text}, f"{name} must be a whole number, not {text!r}")


@pytest.mark.parametrize("name", ["kafka.batch.size", "kafka.buffer.memory", "kafka.max.request.size"])
def test_sizes_are_bytes_and_a_bad_one_gets_an_example(name: str) -> None:
    refused(
        SERVERS | {name: "4m"}, f"{name} must be a whole number, not '4m': it counts bytes, such as 4194304 for 4 MiB"
    )


def test_an_empty_transactional_id_is_no_name_and_not_taken_for_none() -> None:
    """As in Java (NonEmptyString): a variable that was not filled in would write without transactions."""
    for options in ({"transactional.id": ""}, {"transactional.id": " "}):
        with pytest.raises(ConfigError, match=r"kafka\.transactional\.id is empty"):
            producer_config({"bootstrap.servers": "broker:9092", **options})


@pytest.mark.parametrize(("text", "value"), [("true", True), ("TRUE", True), (" false ", False)])
def test_booleans(text: str, value: bool) -> None:
    assert config(enable_idempotence=text).enable_idempotence is value


@pytest.mark.parametrize("text", ["yes", "1", ""])
def test_other_booleans_are_refused(text: str) -> None:
    refused(SERVERS | {"includeHeaders": text}, f"includeHeaders must be true or false, not {text!r}")


def test_choices_are_taken_in_any_case_and_others_are_listed() -> None:
    assert config(acks="ALL").acks == "all"
    assert config(security_protocol="plaintext").security_protocol == "PLAINTEXT"
    refused(SERVERS | {"kafka.acks": "2"}, "kafka.acks must be one of all, -1, 1, 0, not '2'")
    assert config(compression_type="ZSTD").compression_type == "zstd"
    refused(
        SERVERS | {"kafka.compression.type": "zsdt"},
        "kafka.compression.type must be one of none, gzip, snappy, lz4, zstd, not 'zsdt'. Did you mean 'zstd'?",
    )
    refused(SERVERS | {"kafka.security.protocol": "sasl-ssl"}, "not 'sasl-ssl'. Did you mean 'SASL_SSL'?")
    refused(SERVERS | {"kafka.security.protocol": "TLS"}, "kafka.security.protocol must be one of PLAINTEXT, SSL, ")


@pytest.mark.parametrize(
    ("field", "value", "hint"),
    [
        ("batch_size", "65536", "Write 65536"),
        ("acks", "ALL", "Write 'all'"),
        ("acks", "2", "one of all, -1, 1, 0"),
        ("enable_idempotence", "false", "Write False"),
        ("batch_size", -1, "must lie between 0"),
        ("linger_ms", True, "whole number"),
        ("bootstrap_servers", " a:1", "Write 'a:1'"),
    ],
)
def test_a_configuration_built_by_hand_is_checked_too(field: str, value: object, hint: str) -> None:
    with pytest.raises(ConfigError, match=hint):
        ProducerConfig(**({"bootstrap_servers": "a:1"} | {field: value}))  # type: ignore[arg-type]


# --- together -------------------------------------------------------------------------------------------------------


@pytest.mark.covers("KP17")
@pytest.mark.parametrize(
    ("linger", "timeout", "fits"), [(999, 1, True), (1000, 1, False), (0, 1000, True), (0, 1001, False)]
)
def test_delivery_timeout_covers_linger_and_request(linger: int, timeout: int, fits: bool) -> None:
    options = {"linger_ms": linger, "request_timeout_ms": timeout, "delivery_timeout_ms": 1000}
    if fits:
        assert config(**options).delivery_timeout_ms == 1000
        return
    with pytest.raises(
        ConfigError, match=rf"delivery\.timeout\.ms \(1000\).*linger\.ms \({linger}\).*ms \({timeout}\)"
    ):
        config(**options)


@pytest.mark.covers("KP17")
def test_the_default_delivery_timeout_grows_with_what_it_must_cover() -> None:
    """Only an option that was set itself can be a contradiction, as in Java's producer."""
    assert config(linger_ms=100_000).delivery_timeout_ms == 130_000
    assert config(linger_ms=5, request_timeout_ms=10).delivery_timeout_ms == 120_000
    assert config(linger_ms=2**31 - 1).delivery_timeout_ms == 2**31 - 1, "the sum ends there, as in Java"
    with pytest.raises(ConfigError, match="must be at least"):
        config(linger_ms=100_000, delivery_timeout_ms=120_000)
    with pytest.raises(ConfigError, match="must be at least"):
        ProducerConfig(bootstrap_servers="a:1", linger_ms=100_000)


@pytest.mark.covers("NW7")
@pytest.mark.parametrize(
    ("options", "longest"),
    [
        ({}, 1000),
        ({"reconnect_backoff_ms": 70}, 70),
        ({"reconnect_backoff_ms": 70, "reconnect_backoff_max_ms": 90}, 90),
    ],
)
def test_the_reconnect_backoff_alone_does_not_grow(options: dict[str, int], longest: int) -> None:
    assert config(**options).reconnect_backoff_max_ms == longest


MATRIX = [
    # acks, retries, idempotence (None: by default), in flight → idempotent, or the name that the error gives
    ("all", 5, None, 5, True),
    ("-1", 5, None, 1, True),
    ("all", 5, "true", 5, True),
    ("all", 5, "false", 100, False),
    ("1", 5, None, 100, False),
    ("1", 5, "false", 100, False),
    ("all", 0, None, 100, False),
    ("1", 5, "true", 5, r"kafka\.acks"),
    ("all", 0, "true", 5, r"kafka\.retries"),
    ("all", 5, None, 6, r"kafka\.max\.in\.flight"),
    ("all", 5, "true", 6, r"kafka\.max\.in\.flight"),
]


@pytest.mark.covers("KP1")
@pytest.mark.parametrize(("acks", "retries", "asked", "in_flight", "expected"), MATRIX)
def test_idempotence_by_acks_retries_and_requests_in_flight(
    acks: str, retries: int, asked: str | None, in_flight: int, expected: bool | str
) -> None:
    options: dict[str, object] = {"acks": acks, "retries": retries, "max_in_flight_requests_per_connection": in_flight}
    if asked is not None:
        options["enable_idempotence"] = asked
    if isinstance(expected, bool):
        assert idempotent(config(**options)) is expected
        return
    with pytest.raises(ConfigError, match=expected):
        config(**options)


def test_a_batch_fits_into_the_memory() -> None:
    assert config(batch_size=65536, buffer_memory=65536).batch_size == 65536
    with pytest.raises(ConfigError, match=r"kafka\.batch\.size \(65537\) exceeds kafka\.buffer\.memory \(65536\)"):
        config(batch_size=65537, buffer_memory=65536)
    assert config(buffer_memory=65536).batch_size == 65536, "the default is lowered to the memory"
    assert config(buffer_memory=1 << 30).batch_size == config().batch_size


@pytest.mark.parametrize(("option", "lowest", "highest"), [("gzip", -1, 9), ("lz4", 1, 17), ("zstd", -131072, 22)])
def test_levels_of_compression_have_kafkas_ranges(option: str, lowest: int, highest: int) -> None:
    name = f"kafka.compression.{option}.level"
    for level in (lowest, highest):
        parse_options(SERVERS | {name: str(level)})
    for level in (lowest - 1, highest + 1):
        refused(SERVERS | {name: str(level)}, f"{name} must lie between {lowest} and {highest}, not {level}")
    refused(SERVERS | {"kafka.compression.lz5.level": "1"}, "Did you mean 'kafka.compression.lz4.level'?")


def test_gzip_has_no_level_0() -> None:
    refused(
        SERVERS | {"kafka.compression.gzip.level": "0"},
        "kafka.compression.gzip.level must be -1 or lie between 1 and 9",
    )


# --- the table itself -----------------------------------------------------------------------------------------------


NONE_BY_DEFAULT = (
    "ssl_truststore_", "ssl_keystore_", "ssl_key_", "ssl_certificate_", "ssl_cipher_suites", "sasl_mechanism", "sasl_username",
    "sasl_password", "sasl_jaas_config", "sasl_oauthbearer_method", "sasl_oauthbearer_token_", "sasl_oauthbearer_client_",
    "sasl_oauthbearer_scope", "sasl_oauthbearer_extensions", "sasl_oauthbearer_azure_",
    "https_ca_", "sasl_login_callback_", "sasl_client_callback_",
    "secrets_allow", "sasl_kerberos_service_name", "sasl_kerberos_principal", "sasl_kerberos_keytab",
)  # fmt: skip
"""Options without a default. Java has one for the types of stores, which are detected here by their first bytes, and for the
mechanism: GSSAPI, which must be set here."""


def test_the_defaults_contradict_nothing_and_are_kafkas_but_where_it_says_so() -> None:
    kafka = {
        "acks": "all", "enable_idempotence": True, "batch_size": 16384, "linger_ms": 5, "buffer_memory": 33554432,
        "max_request_size": 1048576, "max_in_flight_requests_per_connection": 5, "max_block_ms": 60000,
        "delivery_timeout_ms": 120000, "request_timeout_ms": 30000, "retries": 2147483647, "retry_backoff_ms": 100,
        "retry_backoff_max_ms": 1000, "reconnect_backoff_ms": 50, "reconnect_backoff_max_ms": 1000,
        "socket_connection_setup_timeout_ms": 10000, "socket_connection_setup_timeout_max_ms": 30000,
        "connections_max_idle_ms": 540000, "metadata_max_age_ms": 300000, "metadata_max_idle_ms": 300000,
            "send_buffer_bytes": 131072,
        "receive_buffer_bytes": 32768, "compression_type": "none", "compression_gzip_level": -1,
        "compression_lz4_level": 9, "compression_zstd_level": 3, "security_protocol": "PLAINTEXT",
        "client_dns_lookup": "use_all_dns_ips",
        "metadata_recovery_strategy": "rebootstrap", "metadata_recovery_rebootstrap_trigger_ms": 300000,
        "metadata_cluster_check_enable": True,
        "partitioner_class": "uniform_sticky", "partitioner_ignore_keys": False, "partitioner_rack_aware": False,
        "partitioner_adaptive_partitioning_enable": True, "partitioner_availability_timeout_ms": 0, "client_rack": "",
        "transactional_id": "", "transaction_timeout_ms": 60000, "enable_metrics_push": True,
        "metrics_sample_window_ms": 30000, "metrics_num_samples": 2, "metrics_recording_level": "INFO",
        "ssl_endpoint_identification_algorithm": "https", "ssl_enabled_protocols": "TLSv1.2,TLSv1.3",
        "ssl_protocol": "TLSv1.3", "sasl_oauthbearer_header_urlencode": False,
        "sasl_login_retry_backoff_ms": 100, "sasl_login_retry_backoff_max_ms": 10000,
        "sasl_kerberos_ticket_renew_window_factor": 0.8, "sasl_kerberos_ticket_renew_jitter": 0.05,
        "sasl_kerberos_min_time_before_relogin": 60000,
        "sasl_login_refresh_window_factor": 0.8, "sasl_login_refresh_window_jitter": 0.05,
        "sasl_login_refresh_min_period_seconds": 60, "sasl_login_refresh_buffer_seconds": 300,
        # Java has no limit here, but those of the system
        "sasl_login_connect_timeout_ms": 10000, "sasl_login_read_timeout_ms": 10000,
        # not Kafka's own
        "enable_ssl_certificate_verification": True, "allow_plaintext_credentials": False,
    }  # fmt: skip
    ours = config()
    for field in FIELDS:
        if field.name in ("bootstrap_servers", "client_id"):
            continue
        if field.name.startswith(NONE_BY_DEFAULT):
            assert not getattr(ours, field.name), field.name
            continue
        assert field.name in kafka, f"{field.name}: give the table above the default that it has in Kafka"
        reported = field.metadata["option"].kafka_default
        assert (str(kafka[field.name]) == reported) if reported else (getattr(ours, field.name) == kafka[field.name]), (
            field.name
        )


READ_ELSEWHERE = {
    "client_dns_lookup": "its one choice is what the client does",
    "metrics_recording_level": "every metric is of level INFO, which all of its choices contain",
    "enable_idempotence": "asked through `config.idempotent`",
    "metadata_cluster_check_enable": "asked through `config.checks_cluster`",
    "ssl_enabled_protocols": "asked through `tls_rules.protocols_and_suites`",
    "ssl_protocol": "asked through `tls_rules.protocols_and_suites`",
    "ssl_cipher_suites": "asked through `tls_rules.protocols_and_suites`",
    "sasl_mechanism": "asked through `sasl_rules.credentials`",
    "sasl_username": "asked through `sasl_rules.credentials`",
    "sasl_password": "asked through `sasl_rules.credentials`",
    "sasl_oauthbearer_method": "its one choice is what a token endpoint does; `token_rules` checks that there is one",
    "sasl_oauthbearer_client_credentials_client_id": "asked through `sasl_rules.credentials`",
    "sasl_oauthbearer_client_credentials_client_secret": "asked through `sasl_rules.credentials`",
    "sasl_oauthbearer_scope": "asked through `sasl_rules.credentials`",
    **{
        f"{column}_{what}": "asked through `registry_table.wishes`"
        for column in ("value", "key")
        for what in ("schema", "schema_references", "subject", "message", "message_indexes")
    },
    **dict.fromkeys(
        ("sasl_kerberos_service_name", "sasl_kerberos_principal", "sasl_kerberos_keytab"),
        "asked through `sasl_rules.credentials`",
    ),
    "sasl_oauthbearer_extensions": "asked through `sasl_rules.credentials`",
    "sasl_oauthbearer_token_provider": "asked through `sasl_rules.credentials`",
    "sasl_login_callback_handler_class": "a Java class stands for the provider that `sasl_rules.credentials` gives",
    "sasl_client_callback_handler_class": "a Java class stands for the provider that `sasl_rules.credentials` gives",
    "fill_missing_fields": "asked through `registry_table`, together with `use.latest.version`",
    "profile": "replaced by the options that it stands for, in `config.parsing`",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", [field.name for field in FIELDS + dataclasses.fields(SinkOptions)])
def test_every_option_is_read_by_a_package_other_than_config(name: str) -> None:
    """An option that no module reads would be accepted and silently ignored."""
    read = re.compile(rf"\b(config|options|settings|sink)\.{name}\b")
    others = [path for path in PACKAGE.rglob("*.py") if path.parent.name != "config"]
    is_read = any(read.search(path.read_text(encoding="utf-8")) for path in others)
    assert is_read != (name in READ_ELSEWHERE), f"who uses {name}? See *An option* in docs/design.md"


_BY_NAME = (
    "subscribe", "subscribe_pattern", "assign", "starting_offsets", "starting_timestamp", "starting_offsets_by_timestamp",
    "ending_offsets", "ending_timestamp", "ending_offsets_by_timestamp",
)  # fmt: skip
USED_ELSEWHERE = dict.fromkeys(_BY_NAME, "through `config.subscription` and `config.offset_limits`") | {
    "profile": "replaced by the options that it stands for",
    "group_id_prefix": "accepted without effect: reads join no group",
    "value_reader_schema": "through `SourceOptions.formats`",
    "value_reader_schema_references": "through `SourceOptions.references`",
    "key_reader_schema": "through `SourceOptions.formats`",
    "key_reader_schema_references": "through `SourceOptions.references`",
    "value_message": "through `SourceOptions.messages`",
    "key_message": "through `SourceOptions.messages`",
}
READ_FIELDS = [field.name for field in dataclasses.fields(SourceOptions)]
READ_FIELDS += [field.name for name, field in CONSUMER_FIELDS.items() if name not in KAFKA_FIELDS]


@pytest.mark.slow
@pytest.mark.parametrize("name", READ_FIELDS)
def test_every_option_of_reads_is_used_by_the_data_source(name: str) -> None:
    """An option that nothing uses would be accepted, and ignored in silence."""
    used = re.compile(rf"\b(?:config|source|_source)\.{name}\b")
    modules = [*(PACKAGE / "datasource" / "read").rglob("*.py"), PACKAGE / "consumer" / "settings.py"]
    is_used = any(used.search(path.read_text(encoding="utf-8")) for path in modules)
    assert is_used != (name in USED_ELSEWHERE), "who uses it? See *An option* in docs/design.md"


def test_the_choices_of_compression_type_are_the_codecs() -> None:
    (field,) = [field for field in FIELDS if field.name == "compression_type"]
    assert list(field.metadata["option"].choices) == [codec.name.lower() for codec in Codec]
    levels = {field.name for field in FIELDS if re.fullmatch(r"compression_\w+_level", field.name)}
    assert levels == {f"compression_{codec.name.lower()}_level" for codec in DEFAULT_LEVELS}


def test_every_option_is_documented_with_its_default() -> None:
    rows = {name: (default, doc) for name, default, doc in option_rows()}
    assert len(rows) == len(FIELDS) + len(dataclasses.fields(SinkOptions)) + len(REGISTRY_FIELDS)
    for default, doc in rows.values():
        assert default
        assert re.match(r"[A-Z`].{15,}[.)]$", doc), f"not a sentence of more than 16 characters: {doc!r}"
    assert rows["kafka.batch.size"][1].endswith("Kafka's default: 16384.")
    assert rows["kafka.bootstrap.servers"][0] == "required"
    assert (rows["topic"][0], rows["includeHeaders"][0]) == ("none", "true")


def test_the_markdown_has_a_row_for_every_option_and_no_broken_cell() -> None:
    lines = render_markdown().splitlines()
    assert len(lines) == 2 + len(option_rows())
    assert all(line.count("|") == 4 for line in lines)


def test_names_of_fields_and_options_correspond() -> None:
    assert kafka_name("max_in_flight_requests_per_connection") == "max.in.flight.requests.per.connection"
    assert camel_case("include_headers") == "includeHeaders"


def test_a_configuration_travels_to_the_executors_and_compares_by_value() -> None:
    assert pickle.loads(pickle.dumps(config(linger_ms=7))) == config(linger_ms="7")
    with pytest.raises(dataclasses.FrozenInstanceError):
        config().linger_ms = 3  # type: ignore[misc]


@pytest.mark.parametrize("fields", [KAFKA_FIELDS, CONSUMER_FIELDS], ids=["of writes", "of reads"])
def test_every_default_is_in_its_final_form(fields: Fields) -> None:
    """So configurations need not check the values that are the defaults."""
    checked = 0
    for name, field in fields.items():
        if is_secret(field):
            assert field.default is None, name
        elif name != "bootstrap.servers":
            parsed = parse_value(name, field, str(field.default))
            assert (type(parsed), parsed) == (type(field.default), field.default), name
            checked += 1
    assert checked > 30


def test_a_configuration_checks_only_the_values_that_are_not_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream's options are parsed twice for each micro-batch, and its tasks copy the result."""
    parsed: list[str] = []

    def counted(name: str, field: dataclasses.Field[object], text: str) -> object:
        parsed.append(name)
        return parse_value(name, field, text)

    monkeypatch.setattr(connection_table, "parse_value", counted)
    given = ProducerConfig(bootstrap_servers="b:9092", linger_ms=20)
    assert sorted(parsed) == ["kafka.bootstrap.servers", "kafka.linger.ms"]
    parsed.clear()
    assert dataclasses.replace(given, buffer_memory=1 << 26).buffer_memory == 1 << 26
    assert sorted(parsed) == ["kafka.bootstrap.servers", "kafka.buffer.memory", "kafka.linger.ms"]
