"""Topics and producer ids across lives of the broker."""

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from spark_producer.broker import BrokerSettings, TopicSettings
from spark_producer.broker.storage.disk import folds_case
from spark_producer.broker.topic_names import MAX_NAME_LENGTH
from spark_producer.broker.topic_store import TopicStore
from spark_producer.common.error_codes import Code
from spark_producer.errors import BrokerError, ConfigError, CorruptRecord, PyProducerError
from tests.fakes.disk import Disk
from tests.unit.broker.batches import make_batch


def open_store(path: Path, **settings: Any) -> TopicStore:
    return TopicStore(path, BrokerSettings(**{"storage_engine": "segments", **settings}))


def refused(store: TopicStore, name: str, partitions: int = 1, configs: dict[str, str | None] | None = None) -> int:
    with pytest.raises(BrokerError) as refusal:
        store.create(name, partitions, configs)
    return refusal.value.code


def test_topics_survive_a_restart(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    made = {name: store.create(name, count).topic_id for name, count in (("a", 1), ("b-1", 3))}
    store.partition("b-1", 2).append(make_batch(5))
    cluster = store.directory.cluster_id
    store.close()
    store = open_store(tmp_path)
    assert {topic.name: topic.topic_id for topic in store} == made
    assert store.partition("b-1", 2).log.high_watermark == 5
    assert store.directory.cluster_id == cluster
    assert store.get_by_id(made["a"]) is store.get("a")
    store.close()


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "é", "a\n", "x" * (MAX_NAME_LENGTH + 1), "../a"])
def test_illegal_names_are_refused(tmp_path: Path, name: str) -> None:
    store = open_store(tmp_path)
    assert refused(store, name) == Code.INVALID_TOPIC_EXCEPTION
    store.close()


@pytest.mark.parametrize("name", ["a", "...", "-", "A_b.c-9", "x" * MAX_NAME_LENGTH])
def test_legal_names_are_accepted(tmp_path: Path, name: str) -> None:
    store = open_store(tmp_path)
    assert store.create(name, 1).name == name
    store.delete(name)
    store.close()


def test_what_cannot_be_created(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.create("a.b", 1)
    assert refused(store, "a.b") == Code.TOPIC_ALREADY_EXISTS
    assert refused(store, "a_b") == Code.INVALID_TOPIC_EXCEPTION
    assert refused(store, "n", 0) == Code.INVALID_PARTITIONS
    assert refused(store, "n", 10**9) == Code.INVALID_PARTITIONS
    assert refused(store, "n", 1, {"retention.minutes": "5"}) == Code.INVALID_CONFIG
    assert refused(store, "n", 1, {"cleanup.policy": "compress"}) == Code.INVALID_CONFIG
    assert refused(store, "n", 1, {"max.message.bytes": "many"}) == Code.INVALID_CONFIG
    assert [topic.name for topic in store] == ["a.b"]
    store.close()


def test_settings_of_a_topic_are_applied_and_survive(tmp_path: Path) -> None:
    store = open_store(tmp_path, topic=TopicSettings(max_message_bytes=200))
    store.create("small", 1, {"max.message.bytes": "100", "cleanup.policy": "delete"})
    store.create("default", 1)
    store.close()
    store = open_store(tmp_path, topic=TopicSettings(max_message_bytes=200))
    for name, limit in (("small", 100), ("default", 200)):
        store.partition(name, 0).append(make_batch(size=limit))
        with pytest.raises(BrokerError) as refusal:
            store.partition(name, 0).append(make_batch(size=limit + 1))
        assert refusal.value.code == Code.MESSAGE_TOO_LARGE
    store.close()


def test_a_deleted_topic_is_gone_and_comes_back_empty(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    first = store.create("t", 2)
    store.partition("t", 1).append(make_batch(5))
    store.delete("t")
    assert store.get("t") is None
    assert store.get_by_id(first.topic_id) is None
    assert not list(tmp_path.glob("t-*"))
    again = store.create("t", 1)
    assert again.topic_id != first.topic_id
    assert store.partition("t", 0).log.high_watermark == 0
    with pytest.raises(BrokerError):
        store.partition("t", 1)
    store.delete("t")
    with pytest.raises(BrokerError) as refusal:
        store.delete("t")
    assert refusal.value.code == Code.UNKNOWN_TOPIC_OR_PARTITION
    store.close()


def test_what_a_crash_left_over_is_not_taken_for_a_topic(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.create("t", 1)
    store.partition("t", 0).append(make_batch(5))
    store.close()
    state = json.loads((tmp_path / "broker.json").read_text())
    state.pop("crc32c")
    state["topics"] = {}
    (tmp_path / "broker.json").write_text(json.dumps(state))
    grave, old_grave = tmp_path / ".deleted" / "1", tmp_path / f".deleted-{'a' * 32}"
    for leftover in (grave, old_grave):
        leftover.mkdir(parents=True)
        (leftover / f"{0:020d}.log").touch()
    store = open_store(tmp_path)
    assert not list(store)
    assert not grave.exists()
    assert not old_grave.exists()
    store.create("t", 1)
    assert store.partition("t", 0).log.high_watermark == 0
    store.close()


def test_producer_ids_never_repeat_even_without_a_clean_end(tmp_path: Path) -> None:
    given: list[int] = []
    for _ in range(3):
        store = open_store(tmp_path)
        given += [store.directory.new_producer_id() for _ in range(1500)]
        store.close()  # writes nothing about producer ids: the same as dying here
    assert len(set(given)) == len(given)


def test_one_broker_per_data_directory(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    with pytest.raises(ConfigError, match="in use"):
        open_store(tmp_path)
    store.close()
    open_store(tmp_path).close()


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"format": 99, "topics": {}, "cluster_id": "x"}', "{torn"])
def test_a_foreign_state_file_is_refused_and_left_alone(tmp_path: Path, content: str) -> None:
    (tmp_path / "broker.json").write_text(content)
    with pytest.raises(CorruptRecord, match=r"broker\.json"):
        open_store(tmp_path)
    assert (tmp_path / "broker.json").read_text() == content


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cluster_id": 5}, "cluster_id is 5, not of type str"),
        ({"next_producer_id": "7"}, "next_producer_id is '7', not of type int"),
        ({"topics": {"t": {"topic_id": "00" * 16, "partitions": True}}}, "partitions of 't' is True, not of type int"),
        ({"topics": {"t": {"topic_id": "no", "partitions": 1}}}, "hexadecimal"),
        ({"topics": {"t": {"topic_id": "00" * 16, "partitions": 1, "configs": []}}}, "configs of 't'"),
    ],
)
def test_a_state_file_with_a_value_of_the_wrong_type_is_refused(
    tmp_path: Path, change: dict[str, object], message: str
) -> None:
    (tmp_path / "broker.json").write_text(json.dumps({"format": 1, "topics": {}, "cluster_id": "x"} | change))
    with pytest.raises(CorruptRecord, match=message):
        open_store(tmp_path)


def test_a_topic_name_in_the_state_file_leads_out_of_no_directory(tmp_path: Path) -> None:
    entry = {"topic_id": "00" * 16, "partitions": 1}
    state = {"format": 1, "cluster_id": "x", "topics": {"../outside": entry}}
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "broker.json").write_text(json.dumps(state))
    with pytest.raises(PyProducerError, match="outside"):
        open_store(tmp_path / "data")
    assert not list(tmp_path.glob("outside*"))


def test_a_full_disk_refuses_topics_and_producer_ids_and_changes_nothing(tmp_path: Path, disk: Disk) -> None:
    store = open_store(tmp_path)
    store.create("kept", 1)
    before = open_files()
    disk.refuse("fsync", errno.ENOSPC)
    assert refused(store, "t", 3) == Code.KAFKA_STORAGE_ERROR
    for attempt in (store.directory.new_producer_id, lambda: store.delete("kept")):
        with pytest.raises(BrokerError, match="No space left") as refusal:
            attempt()
        assert refusal.value.code == Code.KAFKA_STORAGE_ERROR
    disk.restore()
    assert [topic.name for topic in store] == ["kept"]
    assert open_files() == before
    assert store.directory.new_producer_id() == 0
    store.create("t", 3)
    store.close()


def open_files() -> int:
    return len(list(Path("/dev/fd").iterdir()))


def test_partitions_take_no_descriptors(tmp_path: Path) -> None:
    """Programs that watch sockets by `select` in the same process, py4j among them, can use the first 1,024 only."""
    store = open_store(tmp_path)
    before = open_files()
    store.create("t", 50)
    for number in range(50):
        store.partition("t", number).append(make_batch(1))
    assert open_files() == before
    store.close()


def test_a_relative_data_directory_outlives_a_change_of_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = open_store(Path("data"))
    store.create("t", 1)
    store.partition("t", 0).append(make_batch(2))
    monkeypatch.chdir("/")
    store.partition("t", 0).append(make_batch(3))
    store.create("u", 1)
    store.close()
    store = open_store(tmp_path / "data")
    assert store.partition("t", 0).log.high_watermark == 5
    assert store.get("u") is not None
    store.close()


def test_too_many_open_files_refuse_a_topic_and_are_given_back(tmp_path: Path, disk: Disk) -> None:
    store = open_store(tmp_path)
    before = open_files()
    real, left = os.open, [5]

    def five_segments(path: Path, flags: int, *mode: int) -> int:
        left[0] -= bool(flags & os.O_CREAT and path.suffix == ".log")
        if left[0] < 0:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return real(path, flags, *mode)

    disk.replace("open", five_segments)
    assert refused(store, "t", 10) == Code.KAFKA_STORAGE_ERROR
    disk.restore()
    assert left == [-1]
    assert open_files() == before
    assert not list(store)
    store.close()


@pytest.mark.parametrize(
    "name", [".deleted", ".deleted-x", f".deleted-{'a' * 32}", ".lock", "broker.json", "deleted", "damaged"]
)
def test_no_name_of_a_topic_stands_for_something_of_the_brokers(tmp_path: Path, name: str) -> None:
    store = open_store(tmp_path)
    topic = store.create(name, 2)
    store.partition(name, 1).append(make_batch(5))
    store.create("other", 1)
    store.delete("other")
    store.close()
    store = open_store(tmp_path)
    assert [topic.name for topic in store] == [name]
    assert store.get_by_id(topic.topic_id) is not None
    assert store.partition(name, 1).log.high_watermark == 5
    store.close()


def test_a_damaged_partition_answers_for_itself_and_the_others_serve(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = open_store(tmp_path)
    store.create("t", 2)
    for index in (0, 1):
        store.partition("t", index).append(make_batch(5))
    store.close()
    segment = tmp_path / "t-0" / f"{0:020d}.log"
    segment.write_bytes(b"\xff" + segment.read_bytes()[1:])
    store = open_store(tmp_path)
    damaged = store.partition("t", 0)
    for attempt in (lambda: damaged.append(make_batch()), lambda: damaged.log):
        with pytest.raises(BrokerError, match=r"partition t-0 is not opened.*Restore the file") as refusal:
            attempt()
        assert refusal.value.code == Code.KAFKA_STORAGE_ERROR
    assert sum("partition t-0 is not opened" in record.message for record in caplog.records) == 1
    assert store.partition("t", 1).append(make_batch()) == 5
    store.delete_old(0)
    store.delete("t")
    assert not (tmp_path / "t-0").exists()
    store.close()


@pytest.mark.parametrize("umask", [0, 0o022])
def test_all_that_is_made_is_private(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        store = open_store(tmp_path / "above" / "data", topic=TopicSettings(segment_bytes=200))
        store.create("t", 1)
        store.create("gone", 1)
        for _ in range(5):
            store.partition("t", 0).append(make_batch())
        store.delete("gone")
        store.close()
        segment = tmp_path / "above" / "data" / "t-0" / f"{0:020d}.log"
        segment.write_bytes(b"\xff" + segment.read_bytes()[1:])
        open_store(tmp_path / "above" / "data").close()
    finally:
        os.umask(before)
    made = {path.relative_to(tmp_path): path for path in (tmp_path / "above").rglob("*")}
    assert {"broker.json", ".lock", "t-0", "checkpoint", "damaged"} <= {path.name for path in made}
    for path in [tmp_path / "above", *made.values()]:
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path


def test_partitions_of_earlier_versions_become_private(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.create("t", 1)
    store.close()
    (tmp_path / "t-0").chmod(0o755)
    open_store(tmp_path).close()
    assert (tmp_path / "t-0").stat().st_mode & 0o777 == 0o700


def test_names_that_differ_in_case_are_refused_where_the_file_system_takes_them_for_one(
    tmp_path: Path,
) -> None:
    store = open_store(tmp_path)
    store.create("Case", 1)
    assert folds_case(tmp_path / ".lock") == (tmp_path / "CASE-0").exists()
    store.close()
    (tmp_path / ".LOCK").touch()  # as on a file system where this is `.lock`
    store = open_store(tmp_path)
    with pytest.raises(BrokerError, match="differs from 'Case' only in case") as refusal:
        store.create("cASE", 1)
    assert refusal.value.code == Code.INVALID_TOPIC_EXCEPTION
    assert store.create("cases", 1).name == "cases"
    store.close()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("segment.bytes", "14"),
        ("segment.bytes", str(2**31)),
        ("segment.ms", "0"),
        ("retention.ms", "-2"),
        ("retention.bytes", str(2**63)),
        ("max.message.bytes", "-1"),
        pytest.param("max.message.bytes", "9" * 5000, id="5000 digits"),
        ("retention.ms", "--1"),
        ("retention.ms", "٣"),
        ("retention.ms", None),
    ],
)
def test_a_number_outside_of_its_bounds_is_refused(tmp_path: Path, name: str, value: str | None) -> None:
    store = open_store(tmp_path)
    with pytest.raises(
        BrokerError, match=rf"topic setting {name} has the invalid value .*\. Use a whole number from"
    ) as refusal:
        store.create("t", 1, {name: value})
    assert refusal.value.code == Code.INVALID_CONFIG
    assert len(str(refusal.value)) < 300
    store.close()


def test_a_small_segment_that_an_earlier_version_took_still_opens(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.create("t", 1, {"segment.bytes": str(1 << 20)})
    store.close()
    state = json.loads((tmp_path / "broker.json").read_text())
    state.pop("crc32c")
    state["topics"]["t"]["configs"] = {"segment.bytes": "150"}
    (tmp_path / "broker.json").write_text(json.dumps(state))
    store = open_store(tmp_path)
    for _ in range(3):
        store.partition("t", 0).append(make_batch())
    assert len(list((tmp_path / "t-0").glob("*.log"))) == 3
    store.close()


def test_settings_of_a_partition_may_be_replaced_while_it_serves(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.create("t", 1)
    partition = store.partition("t", 0)
    partition.settings = TopicSettings(max_message_bytes=100, segment_bytes=150)
    with pytest.raises(BrokerError):
        partition.append(make_batch(size=101))
    for _ in range(2):
        partition.append(make_batch(size=100))
    assert len(list((tmp_path / "t-0").glob("*.log"))) == 2
    store.close()
