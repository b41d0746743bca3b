"""A process that forks while other threads hold every lock of its producer: `python -m tests.support.forked SERVERS TOPIC`.

Owns: what parent and child do; prints a line for each thing that went as it should. Must not know: what is right.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pyarrow as pa

from spark_producer import Producer
from spark_producer.config import SinkOptions, producer_config
from spark_producer.datasource.write.task_settings import TaskSettings
from spark_producer.datasource.write.worker import task
from spark_producer.errors import IllegalState
from spark_producer.producer import parts_of

CHILD_SECONDS = 60
"""Seconds after which a child that hangs is killed by its own alarm."""


def rows(value: str) -> pa.RecordBatch:
    """One row."""
    return pa.record_batch({"value": [value]})


def locks(producer: Producer) -> list[Any]:
    """All that the producer takes in a call."""
    return [
        parts_of(producer).accumulator.incomplete._lock,
        parts_of(producer).accumulator.pool._lock,
        parts_of(producer).meter.events._lock,
    ]


def fork_with_locks_held(producer: Producer) -> int:
    """Fork as `os.fork`, while another thread holds the locks."""
    held, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        with ExitStack() as stack:
            for lock in locks(producer):
                stack.enter_context(lock)
            held.set()
            go_on.wait(CHILD_SECONDS)

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait(CHILD_SECONDS)
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # of Python 3.12, about forks with threads: they are the point
        child = os.fork()
    if child:
        go_on.set()
        holder.join()
    return child


def child(producer: Producer, settings: TaskSettings, topic: str) -> None:
    """Every call is refused; the worker's cache makes a new producer, which writes."""
    calls: dict[str, Callable[[], object]] = {
        "send_batch": lambda: producer.send_batch(rows("never"), topic=topic),
        "send_table": lambda: producer.send_table(pa.table({"value": ["never"]}), topic=topic),
        "send": lambda: producer.send(topic, "never"),
        "flush": producer.flush,
        "metrics": producer.metrics,
        "take_report": parts_of(producer).take_report,
        "partition_count": lambda: parts_of(producer).partition_count(topic),
    }
    for name, call in calls.items():
        try:
            call()
        except IllegalState as error:
            said = f"created in process {os.getppid()}" in str(error)
            print("refused" if said else error, name, flush=True)
    print("failed", parts_of(producer).failed, flush=True)
    with producer:
        print("with", flush=True)
    producer.close()
    print("closed", flush=True)
    print("written", task.write_task(settings, iter([rows("child")])).report.records, flush=True)
    task.drop_producer()


def main(servers: str, topic: str) -> None:
    """Fork between two tasks of a worker, and print how the child ended."""
    settings = TaskSettings(producer_config({"bootstrap.servers": servers}), SinkOptions(topic=topic))
    task.write_task(settings, iter([rows("before")]))
    producer = task.cached_producer(settings.config)
    pid = fork_with_locks_held(producer)
    if pid == 0:
        signal.alarm(CHILD_SECONDS)
        status = 1
        try:
            child(producer, settings, topic)
            status = 0
        finally:
            os._exit(status)
    print("child", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
    assert task.cached_producer(settings.config) is producer
    print("written", task.write_task(settings, iter([rows("after")])).report.records, flush=True)
    task.drop_producer()


if __name__ == "__main__":
    main(*sys.argv[1:])
