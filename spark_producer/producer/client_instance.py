"""The client instance id of a producer (KIP-714), for threads that wait for it."""

from __future__ import annotations

import threading
from collections.abc import Callable

from spark_producer.errors import KafkaTimeout, UnsupportedVersion
from spark_producer.telemetry.pusher import TelemetryPusher


def wait_for_client_instance_id(
    pusher: TelemetryPusher,
    timeout: float,
    clock: Callable[[], float],
    wakeup: Callable[[], None],
    check_open: Callable[[], None],
) -> str:
    """Return the id that the brokers have assigned to a client, and request it if there was no request yet.

    `wakeup` wakes the thread that owns the pusher. `check_open` raises the error that has ended the client.

    Raises:
        KafkaTimeout: no broker has assigned one within `timeout` seconds.
        UnsupportedVersion: the brokers take no metrics. The error that has ended the client.
    """
    deadline, changed = clock() + timeout, threading.Event()
    pusher.listen(changed.set)
    try:
        wakeup()
        while (found := pusher.client_instance_id) is None:
            check_open()
            if pusher.not_offered or pusher.is_off:
                raise UnsupportedVersion(
                    "there is no client instance id: the brokers take no metrics of clients (KIP-714). They need a plugin, a "
                    "MetricsReporter that implements ClientTelemetry"
                )
            left = deadline - clock()
            if left <= 0:
                raise KafkaTimeout(
                    f"there is no client instance id: no broker has assigned one within {timeout:g} s. See that the brokers run, "
                    "or give more time"
                )
            changed.wait(min(left, threading.TIMEOUT_MAX))
            changed.clear()
        return found
    finally:
        pusher.forget(changed.set)
