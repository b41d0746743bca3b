"""The default of `buffer.memory` in Spark: what the configuration leaves to one worker, within bounds."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_producer.config import KAFKA_FIELDS, ProducerConfig, is_set, parse_options
from spark_producer.datasource.write.task_settings import TaskSettings
from spark_producer.datasource.write.worker import executor_memory, task
from spark_producer.datasource.write.worker.cgroup_memory import group_limits, machine_memory, smallest_limit
from spark_producer.datasource.write.worker.executor_memory import (
    MAX_BUFFER_MEMORY,
    MIN_BUFFER_MEMORY,
    default_buffer_memory,
)

MIB = 1 << 20
GIB = 1 << 30
SERVERS = {"kafka.bootstrap.servers": "broker:9092"}


@pytest.fixture(autouse=True)
def _machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """16 GiB, 4 processors. Patched, since a task asks for both far below what a test calls."""
    monkeypatch.setattr(executor_memory, "machine_memory", lambda: 16 * GIB)
    monkeypatch.setattr("os.cpu_count", lambda: 4)


def found(**properties: str) -> int:
    """In MiB; `spark_executor_cores` stands for `spark.executor.cores`."""
    given = {name.replace("_", "."): value for name, value in properties.items()}
    return default_buffer_memory(given.get) // MIB


def test_the_bounds_are_those_of_the_documentation() -> None:
    assert (MIN_BUFFER_MEMORY, MAX_BUFFER_MEMORY) == (32 * MIB, 256 * MIB)
    assert ProducerConfig(bootstrap_servers="b:1").buffer_memory == MIN_BUFFER_MEMORY
    assert f"at most {MAX_BUFFER_MEMORY} " in KAFKA_FIELDS["buffer.memory"].metadata["option"].doc
    assert found() == 32, "nothing is known"


def test_an_executor_of_kubernetes_gives_the_most_and_one_of_yarn_the_least() -> None:
    executor = {"spark_executor_memory": "8g", "spark_executor_cores": "4"}
    assert found(spark_master="k8s://host", spark_kubernetes_resource_type="python", **executor) == 256
    assert found(spark_master="yarn", **executor) == 32
    assert found(spark_master="yarn", spark_executor_memoryOverheadFactor="0.4", **executor) == 256


def test_between_the_bounds_it_is_half_of_what_is_left() -> None:
    """1,000 MiB, less 256 for the JVM, for two tasks: 372, less 170."""
    overhead = {"spark_executor_memoryOverhead": "1000m", "spark_executor_cores": "4", "spark_task_cpus": "2"}
    assert found(spark_master="yarn", spark_executor_memory="1g", **overhead) == (372 - 170) // 2
    assert found(spark_master="spark://host:7077", spark_executor_memory="1g", **overhead) == (372 - 170) // 2


def test_the_limit_of_pysparks_own_memory_is_one_of_address_space() -> None:
    given = {"spark_executor_pyspark_memory": "3g", "spark_executor_cores": "4"}
    assert found(spark_master="yarn", **given) == (768 - 659) // 2
    assert found(spark_master="local[4]", **given) == (768 - 659) // 2, "it is set there too"
    profile = {"resource_pyspark_memory": "4096", "resource_executor_cores": "2"}
    assert found(spark_master="yarn", **given, **profile) == 256, "a resource profile's are MiB, and come first"


@pytest.mark.parametrize(
    ("master", "expected"),
    [("local", 256), ("local[2]", 256), ("local[10]", 119), ("local[*]", 256), ("local[64,3]", 32)],
)
def test_in_local_mode_the_workers_share_a_quarter_of_the_machine(master: str, expected: int) -> None:
    assert found(spark_master=master) == expected
    assert found(spark_master="local-cluster[1,2,1024]") == 32, "that has executors"


@pytest.mark.parametrize(
    ("groups", "files", "expected"),
    [
        ("0::/\n", {"memory.max": "2147483648\n"}, [2 * GIB]),
        ("0::/\n", {"memory.max": "max\n"}, []),
        ("0::/a/b\n", {"a/b/memory.max": "max\n", "a/memory.max": "3000\n", "memory.max": "4000\n"}, [3000, 4000]),
        ("0::/only/on/the/host\n", {"memory.max": "5000\n"}, [5000]),
        ("3:cpu,cpuacct:/x\n2:memory:/x\n0::/\n", {"memory/x/memory.limit_in_bytes": "6000\n"}, [6000]),
        ("1:name=systemd:/a:b\n", {}, []),
        (None, {}, []),
    ],
)
def test_a_containers_memory_is_that_of_its_control_groups(
    tmp_path: Path, groups: str | None, files: dict[str, str], expected: list[int]
) -> None:
    given = {f"sys/fs/cgroup/{name}": text for name, text in files.items()}
    for name, text in (given if groups is None else given | {"proc/self/cgroup": groups}).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert group_limits(str(tmp_path)) == expected


def test_the_tightest_limit_counts() -> None:
    assert smallest_limit([1 << 62, 3 * MIB, 4 * MIB]) == 3 * MIB
    assert 3 * MIB < smallest_limit([1 << 62]) < 1 << 62
    assert machine_memory() == smallest_limit(group_limits())


@pytest.mark.parametrize("text", ["much", "1.5g", ""])
def test_what_cannot_be_read_gives_the_least(text: str) -> None:
    assert found(spark_master="yarn", spark_executor_memoryOverhead=text) == 32


@pytest.mark.parametrize(
    "given",
    [
        {"spark_master": "yarn", "spark_task_cpus": "0"},
        {"spark_master": "yarn", "spark_executor_memoryOverheadFactor": "inf"},
        {"spark_master": "yarn", "spark_executor_memoryOverheadFactor": "nan"},
        {"spark_master": "local[0]"},
    ],
)
def test_what_cannot_be_reckoned_gives_the_least(given: dict[str, str]) -> None:
    assert found(**given) == 32


@pytest.mark.parametrize(
    ("size", "expected"), [("17", 17 * MIB), ("17m", 17 * MIB), ("1GB", GIB), ("2k", 2048), ("9b", 9), ("1t", 1 << 40)]
)
def test_sizes_are_sparks(size: str, expected: int) -> None:
    assert executor_memory._bytes(size) == expected


class Context:
    """The part of a TaskContext that is read."""

    @staticmethod
    def getLocalProperty(name: str) -> str | None:
        return {"spark.master": "local[2]"}.get(name)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, 256 * MIB),
        ({"kafka.buffer.memory": "33554432"}, 32 * MIB),
        ({"KAFKA.Buffer.Memory": "65536"}, 65536),
        ({"profile": "small-memory"}, 4 * MIB),
        ({"profile": "latency"}, 256 * MIB),
    ],
)
def test_what_is_set_holds_exactly(options: dict[str, str], expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    given = SERVERS | options
    settings = TaskSettings(*parse_options(given), buffer_memory_unset=not is_set(given, "buffer.memory"))
    assert task.worker_config(settings) is settings.config, "outside of a task, Kafka's default"
    monkeypatch.setattr("spark_producer.datasource.write.worker.task.TaskContext.get", Context)  # only Spark makes one
    assert task.worker_config(settings).buffer_memory == expected
    assert task.worker_config(settings) == task.worker_config(settings), "one producer of the worker's cache"
