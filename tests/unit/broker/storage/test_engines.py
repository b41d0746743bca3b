"""The choice of a storage engine, to which a data directory then keeps."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from spark_producer.broker import BrokerSettings, LocalBroker
from spark_producer.broker.memory.plan import SHARES, plan_memory
from spark_producer.broker.settings import STORAGE_ENGINES, TopicSettings, with_memory
from spark_producer.broker.storage.engines import chosen_engine, engine_of, open_storage
from spark_producer.errors import ConfigError, CorruptRecord
from spark_producer.record.batch_v2 import read_header
from tests.interop.broker_records import assert_holds, read, records_of_every_kind, write
from tests.unit.broker.batches import make_batch


def settings(engine: str) -> BrokerSettings:
    return BrokerSettings(storage_engine=engine)


def keep_records(path: Path, engine: str) -> None:
    path.mkdir(exist_ok=True)
    storage = open_storage(path, settings(engine))
    storage.recover({})
    log = storage.create("t", 0, TopicSettings())
    batch = make_batch()
    log.admit(batch, read_header(batch))
    log.close()
    storage.close()


@pytest.mark.parametrize(("first", "second"), [("segments", "tiered"), ("tiered", "segments")])
def test_a_directory_is_not_opened_with_another_engine(first: str, second: str, tmp_path: Path) -> None:
    assert engine_of(tmp_path) is None
    keep_records(tmp_path, first)
    assert engine_of(tmp_path) == first
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ConfigError, match=f"storage_engine '{second}': it was written by the storage engine '{first}'"):
        open_storage(tmp_path, settings(second))
    assert sorted(tmp_path.rglob("*")) == before
    open_storage(tmp_path, settings(first)).close()


@pytest.mark.parametrize("first", STORAGE_ENGINES)
def test_a_directory_keeps_its_engine_where_none_is_named(first: str, tmp_path: Path) -> None:
    with LocalBroker(tmp_path, settings=settings(first)) as broker:
        broker.create_topic("t")
    with LocalBroker(tmp_path) as broker:
        assert broker.topics() == {"t": 1}
    assert engine_of(tmp_path) == first
    assert chosen_engine(tmp_path, BrokerSettings()) == first


@pytest.mark.parametrize(
    "of_tiered_alone",
    [
        BrokerSettings(journal_dir="journal"),
        BrokerSettings(ledger_dirs=("a", "b")),
        BrokerSettings(index_engine="rocks"),
        *(
            BrokerSettings(memory=plan_memory(given={name: "4M"}))
            for share in SHARES
            for name in (share.name, share.counterpart)
            if share.is_tier
        ),
    ],
)
def test_what_the_tiered_engine_alone_has_chooses_it_for_a_new_directory(
    of_tiered_alone: BrokerSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for data_dir in (None, tmp_path / "not yet", tmp_path):
        assert chosen_engine(data_dir, of_tiered_alone) == "tiered"
    with LocalBroker(tmp_path / "data", settings=of_tiered_alone):
        pass
    assert engine_of(tmp_path / "data") == "tiered"
    keep_records(tmp_path / "old", "segments")
    before = sorted((tmp_path / "old").rglob("*"))
    with pytest.raises(
        ConfigError, match=r"engine is 'segments', and only 'tiered' has .*\. Leave it out, or use the engine"
    ):
        open_storage(tmp_path / "old", of_tiered_alone)
    with pytest.raises(ConfigError, match="engine is 'segments', and only 'tiered' has "):
        replace(of_tiered_alone, storage_engine="segments")
    assert sorted((tmp_path / "old").rglob("*")) == before


def test_what_both_engines_have_chooses_none(tmp_path: Path) -> None:
    publish = {"broker.publish.buffer.bytes": "4M"}
    for settings in (
        BrokerSettings(sync_each_append=True),
        with_memory(BrokerSettings(), plan_memory(512 * 1024 * 1024, publish)),
        BrokerSettings(memory=plan_memory(given={"maxMessagePublishBufferSizeInMB": "-1"})),
    ):
        assert chosen_engine(None, settings) == chosen_engine(tmp_path, settings) == "segments"


def not_empty(path: Path) -> BrokerSettings:
    (path / "ledgers").mkdir()
    (path / "ledgers" / "photo.jpg").touch()
    return BrokerSettings(journal_dir=str(path / "journal"), ledger_dirs=(str(path / "ledgers"),))


def of_another(path: Path) -> BrokerSettings:
    settings = BrokerSettings(journal_dir=str(path / "journal"), ledger_dirs=(str(path / "ledgers"),))
    LocalBroker(path / "another", settings=settings).close()
    return replace(settings, journal_dir=None)


def without_rocksdict(path: Path) -> BrokerSettings:
    return BrokerSettings(index_engine="rocks")


def too_large(path: Path) -> BrokerSettings:
    settings = BrokerSettings(storage_engine="tiered")
    return replace(settings, memory=replace(settings.memory, read_cache=2**62))


def promises_too_much(path: Path) -> BrokerSettings:
    return BrokerSettings(topic=TopicSettings(max_message_bytes=8 * 1024 * 1024 + 1), storage_engine="tiered")


@pytest.mark.slow
@pytest.mark.parametrize("refused", [not_empty, of_another, without_rocksdict, too_large, promises_too_much])
def test_a_first_start_that_is_refused_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Callable[[Path], BrokerSettings]
) -> None:
    """A folder of the engine would decide with which one the directory is opened from then on."""
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    data_dir, elsewhere = tmp_path / "data", tmp_path / "elsewhere"
    elsewhere.mkdir()
    wrong = refused(elsewhere)
    before = sorted(elsewhere.rglob("*"))
    with pytest.raises(ConfigError):
        LocalBroker(data_dir, settings=wrong)
    assert engine_of(data_dir) is None
    assert sorted(data_dir.iterdir()) == [data_dir / ".lock"]
    assert sorted(elsewhere.rglob("*")) == before
    keep_records(data_dir, "segments")


def test_the_memory_must_hold_the_largest_batch_that_the_brokers_topics_take(tmp_path: Path) -> None:
    """Not the largest one that topics of any broker take by default."""
    promise = TopicSettings(max_message_bytes=20_000_000)
    with pytest.raises(ConfigError, match=r"8,388,608 bytes, but topics accept batches of 20,000,000\. .* 40000000 at"):
        LocalBroker(tmp_path, settings=BrokerSettings(topic=promise, storage_engine="tiered"))
    LocalBroker(settings=BrokerSettings(topic=promise)).close()
    enough = plan_memory(storage=320_000_000)
    LocalBroker(tmp_path, settings=BrokerSettings(topic=promise, memory=enough, storage_engine="tiered")).close()


def test_a_new_directory_has_segments_where_no_engine_is_named(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic("t")
    assert engine_of(tmp_path) == "segments"
    assert (tmp_path / "t-0" / "00000000000000000000.log").exists()
    assert not (tmp_path / "tiered").exists()
    assert chosen_engine(None, BrokerSettings()) == "segments"


@pytest.mark.parametrize("engine", STORAGE_ENGINES)
def test_a_broker_without_records_is_remembered_too(engine: str, tmp_path: Path) -> None:
    with LocalBroker(tmp_path, settings=settings(engine)):
        pass
    assert engine_of(tmp_path) == engine


@pytest.mark.parametrize("named", ["tiered", None])
@pytest.mark.parametrize("left", ["nothing", "the folder", "all folders"])
def test_a_folder_of_the_tiered_engine_that_is_lost_is_missed(tmp_path: Path, left: str, named: str | None) -> None:
    """The directory looks like the mount point of a file system that is not mounted."""
    keep_topic(tmp_path, "tiered")
    tiers = tmp_path / "tiered"
    if left == "all folders":
        for path in [path for path in tiers.rglob("*") if path.is_file()]:
            path.unlink()
    else:
        shutil.rmtree(tiers)
        if left == "the folder":
            tiers.mkdir()
    before = sorted(tmp_path.rglob("*"))
    for _ in range(2):
        with pytest.raises(
            CorruptRecord, match=r"tiered/catalog\.json is missing.*it existed.*broker\.json, which has topics"
        ):
            LocalBroker(tmp_path, settings=BrokerSettings(storage_engine=named))
        assert sorted(tmp_path.rglob("*")) == before, "nothing is made"
    with LocalBroker(tmp_path, settings=BrokerSettings(storage_engine=named, skip_damage=True)) as broker:
        assert broker.topics() == {"t": 1}


def keep_topic(path: Path, engine: str) -> None:
    with LocalBroker(path, settings=settings(engine)) as broker:
        broker.create_topic("t")
        write("kafka-python", broker.bootstrap_servers, "t", records_of_every_kind(1, writer="kafka-python"))


def test_the_lost_directories_of_segments_are_not_taken_for_those_of_another_engine(tmp_path: Path) -> None:
    keep_topic(tmp_path, "segments")
    shutil.rmtree(tmp_path / "t-0")
    assert chosen_engine(tmp_path, BrokerSettings()) == "segments"
    with pytest.raises(ConfigError, match="written by the storage engine 'segments'"):
        LocalBroker(tmp_path, settings=settings("tiered"))


def test_an_unknown_engine_is_refused() -> None:
    with pytest.raises(ConfigError, match="storage_engine is 'rocks'"):
        settings("rocks")


def test_an_unknown_index_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"index_engine is 'btree': it must be one of \('arrays', 'rocks'\)"):
        BrokerSettings(storage_engine="tiered", index_engine="btree")


def test_the_setting_chooses_the_index_of_the_tiered_engine(tmp_path: Path) -> None:
    chosen = BrokerSettings(storage_engine="tiered", index_engine="rocks")
    open_storage(tmp_path, chosen).close()
    assert (tmp_path / "tiered" / "ledgers" / "index.rocks").is_dir()


def test_kafka_python_finds_on_the_tiered_engine_what_it_wrote_before_a_restart(tmp_path: Path) -> None:
    with LocalBroker(tmp_path, settings=settings("tiered")) as broker:
        broker.create_topic("t", 3)
        records = records_of_every_kind(3, writer="kafka-python")
        write("kafka-python", broker.bootstrap_servers, "t", records)
        assert_holds(read("kafka-python", broker.bootstrap_servers, "t"), records)
    with LocalBroker(tmp_path, settings=settings("tiered")) as broker:
        assert_holds(read("kafka-python", broker.bootstrap_servers, "t"), records)


def test_records_that_are_thrown_away_wait_for_no_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """The remaining files are those of the broker itself, which are the same with every engine."""
    forced: list[int] = []
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, forced.append)
    counts = []
    for engine in STORAGE_ENGINES:
        forced.clear()
        with LocalBroker(settings=settings(engine)) as broker:
            broker.create_topic("t")
            records = records_of_every_kind(1, writer="kafka-python")
            write("kafka-python", broker.bootstrap_servers, "t", records)
            assert_holds(read("kafka-python", broker.bootstrap_servers, "t"), records)
        counts.append(len(forced))
    assert counts == [counts[0]] * len(STORAGE_ENGINES)
