"""Records that belong to no topic, since the state file was lost or changed: they are logged, and never erased."""

import json
from pathlib import Path

import pytest

from spark_producer.broker import BrokerSettings
from spark_producer.broker.storage.segments.orphaned_logs import NAME
from spark_producer.broker.topic_store import TopicStore
from spark_producer.errors import CorruptRecord
from tests.unit.broker.batches import make_batch

SEGMENTS = BrokerSettings(storage_engine="segments")


def filled(path: Path) -> bytes:
    """A data directory with five records in the second partition of `t`; what is in that partition's file."""
    store = TopicStore(path, SEGMENTS)
    store.create("t", 2)
    store.partition("t", 1).append(make_batch(5))
    store.close()
    return (path / "t-1" / f"{0:020d}.log").read_bytes()


def change_topics(path: Path, topics: dict[str, object]) -> None:
    state = json.loads((path / "broker.json").read_text())
    state.pop("crc32c")
    (path / "broker.json").write_text(json.dumps(state | {"topics": topics}))


def test_without_its_state_a_directory_with_records_is_refused(tmp_path: Path) -> None:
    filled(tmp_path)
    (tmp_path / "broker.json").unlink()
    with pytest.raises(CorruptRecord, match=r"has records \(t-1\).*Restore that file"):
        TopicStore(tmp_path, SEGMENTS)
    assert not (tmp_path / "broker.json").exists(), "the next start must be refused, too"


def test_records_of_no_topic_are_logged_and_set_aside_for_a_new_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    content = filled(tmp_path)
    change_topics(tmp_path, {})
    store = TopicStore(tmp_path, SEGMENTS)
    assert "1 directories hold records of no topic (t-1)" in caplog.text
    store.create("t", 2)
    assert store.partition("t", 1).log.high_watermark == 0
    (kept,) = (tmp_path / NAME).iterdir()
    assert (kept / f"{0:020d}.log").read_bytes() == content
    assert f"they were moved to {kept}" in caplog.text
    store.close()


def test_a_state_that_is_there_is_not_written_by_a_start(tmp_path: Path) -> None:
    filled(tmp_path)
    (tmp_path / "broker.json.new").mkdir()  # so it cannot be written
    store = TopicStore(tmp_path, SEGMENTS)
    assert store.partition("t", 1).log.high_watermark == 5, "a full disk can be read"
    store.close()
