"""The client instance id of a producer (KIP-714), for threads that wait for it."""

from __future__ import annotations

import threading
from collections.abc import Callable

from spark_producer.errors import KafkaTimeout, UnsupportedVersion
from spark_producer.telemetry.pusher import TelemetryPusher

RECHECK_S = 0.05
"""Seconds between two looks of a thread that waits: a connection has to come up first."""


def wait_for_client_instance_id(
    pusher: TelemetryPusher, timeout: float, clock: Callable[[], float], wakeup: Callable[[], None]
) -> str:
    """Return the id that the brokers have assigned to a client, and request it if there was no request yet.

    Raises:
        KafkaTimeout: no broker has assigned one within `timeout` seconds.
        UnsupportedVersion: the brokers take no metrics.
    """
    deadline, pause = clock() + timeout, threading.Event()
    pusher.may_connect = True
    while (found := pusher.client_instance_id) is None:
        if pusher.not_offered or pusher.is_off:
            raise UnsupportedVersion(
                "there is no client instance id: the brokers take no metrics of clients (KIP-714). They need a plugin, a "
                "MetricsReporter that implements ClientTelemetry"
            )
        if clock() >= deadline:
            raise KafkaTimeout(
                f"there is no client instance id: no broker has assigned one within {timeout:g} s. See that the brokers run, or "
                "give more time"
            )
        if pusher.reporter is None:
            pusher.due_at = 0.0
            wakeup()
        pause.wait(RECHECK_S)
    pusher.may_connect = False
    return found
