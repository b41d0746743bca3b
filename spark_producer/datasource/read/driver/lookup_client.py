"""The client with which the driver of a read looks up topics and offsets."""

from __future__ import annotations

from spark_producer.admin import BlockingClient
from spark_producer.common.wait_warning import WaitWarning
from spark_producer.datasource.read.source_settings import SourceSettings
from spark_producer.network import ConnectionSettings

TIMEOUT_OPTION = "kafka.default.api.timeout.ms"


def connect(settings: SourceSettings) -> BlockingClient:
    """Return a client for the look-ups of a read, which logs a warning in a long wait.

    Raises:
        ConfigError: as `ConnectionSettings.from_config`.
    """
    connection, limit = ConnectionSettings.from_config(settings.config), settings.config.default_api_timeout_ms / 1000
    wait = WaitWarning(limit, TIMEOUT_OPTION)
    return BlockingClient(connection, timeout=limit, timeout_option=TIMEOUT_OPTION, on_wait=wait)
