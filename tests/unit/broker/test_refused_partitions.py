"""Partitions that the system refuses when the broker starts."""

import shutil
from pathlib import Path

import pytest

from spark_producer.broker import BrokerSettings
from spark_producer.broker.topic_store import TopicStore
from spark_producer.common.error_codes import Code
from spark_producer.errors import BrokerError
from tests.unit.broker.batches import make_batch


@pytest.mark.parametrize("what", ["segment", "checkpoint", "partition"])
def test_a_partition_that_the_system_refuses_answers_for_itself_and_the_others_serve(
    tmp_path: Path, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = TopicStore(tmp_path, BrokerSettings(storage_engine="segments"))
    store.create("t", 2)
    store.partition("t", 0).append(make_batch(5))
    store.close()
    directory = tmp_path / "t-0"
    if what == "partition":
        shutil.rmtree(directory)
        directory.touch()
    else:
        refused_file = directory / (f"{0:020d}.log" if what == "segment" else "checkpoint")
        refused_file.unlink()
        refused_file.mkdir()
    store = TopicStore(tmp_path, BrokerSettings(storage_engine="segments"))
    with pytest.raises(BrokerError, match=r"partition t-0 is not opened: ") as refusal:
        store.partition("t", 0).append(make_batch())
    assert refusal.value.code == Code.KAFKA_STORAGE_ERROR
    assert "partition t-0 is not opened" in caplog.text
    assert store.partition("t", 1).append(make_batch()) == 0
    store.close()
