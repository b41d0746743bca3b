"""The catalog on the disk: the whole of it, and the changes since."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from spark_producer.broker.storage.tiered import catalog as catalog_module
from spark_producer.broker.storage.tiered.catalog import Catalog
from spark_producer.broker.storage.tiered.ledgers import Ledger
from spark_producer.errors import CorruptRecord
from tests.support.simulated_disk import SimulatedDisk
from tests.unit.broker.storage.tiered.engine_harness import EngineHarness

DATA_DIR = Path("/tiered")
LEDGER = Ledger(0, 5, 1, 2, 1, 100)


def opened(disk: SimulatedDisk | None = None) -> tuple[SimulatedDisk, Catalog]:
    disk = disk or SimulatedDisk()
    disk.make_directory(DATA_DIR)
    return disk, Catalog(disk, DATA_DIR)


def known(catalog: Catalog) -> tuple[object, ...]:
    entries = sorted(catalog.entries(), key=lambda entry: entry.log_id)
    found = [catalog.find(entry.topic, entry.partition) for entry in entries]
    return entries, found, catalog.index_bytes(0), catalog.identity, catalog.external


def change_much(catalog: Catalog) -> None:
    """Store after each change."""
    catalog.store()
    first, second, third = (catalog.add("t", index) for index in range(3))
    catalog.store()
    catalog.set_ledgers(
        {first.log_id: [LEDGER], second.log_id: [LEDGER, replace(LEDGER, first_offset=5, end_offset=9)]}
    )
    catalog.set_index_bytes(0, 1000)
    catalog.store()
    catalog.set_aside(first.log_id)
    catalog.add("t", 0)
    catalog.set_start(second.log_id, 5)
    catalog.store()
    catalog.remove(third.log_id)
    catalog.store()
    catalog.add("t", 2)
    catalog.store()


def test_changes_are_found_again_by_the_next_life() -> None:
    disk, catalog = opened()
    change_much(catalog)
    assert disk.names(DATA_DIR) == ["catalog.1", "catalog.json"]
    again = opened(disk.crash(1))[1]
    assert known(again) == known(catalog)
    assert again.add("u", 0).log_id == 5, "no id is used twice"
    again.store()
    assert known(opened(disk)[1]) == known(catalog), "the other disk has its own"


def test_a_life_begins_with_the_whole_catalog_and_older_changes_are_removed() -> None:
    disk, catalog = opened()
    change_much(catalog)
    again = opened(disk)[1]
    again.store()
    assert disk.names(DATA_DIR) == ["catalog.2", "catalog.json"]
    assert known(opened(disk)[1]) == known(catalog)


@pytest.mark.parametrize("torn", [b"\0", b""])
def test_changes_cut_at_every_byte_leave_those_before(torn: bytes) -> None:
    disk, catalog = opened()
    catalog.store()
    states = [known(catalog)]
    for index in range(3):
        catalog.add("t", index)
        catalog.store()
        states.append(known(catalog))
    changes = disk.content(DATA_DIR / "catalog.1")
    ends = [place + 1 for place, byte in enumerate(changes) if byte == ord("\n")]
    for cut in range(len(changes)):
        disk.put(DATA_DIR / "catalog.1", changes[:cut] + torn * (len(changes) - cut))
        whole = sum(
            end - (not torn) <= cut for end in ends
        )  # a newline that is missing at the end of a file says nothing
        assert known(opened(disk)[1]) == states[whole], f"cut at {cut}"


def test_damage_before_the_end_of_the_changes_is_reported() -> None:
    disk, catalog = opened()
    change_much(catalog)
    changes = bytearray(disk.content(DATA_DIR / "catalog.1"))
    changes[20] ^= 1
    disk.put(DATA_DIR / "catalog.1", bytes(changes))
    with pytest.raises(CorruptRecord, match=r"catalog.1 is damaged before its end"):
        opened(disk)


def test_a_catalog_of_a_newer_version_is_refused_by_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as newer:
        newer.setattr(catalog_module, "_FORMAT", 9)
        disk, catalog = opened()
        change_much(catalog)
    with pytest.raises(
        CorruptRecord, match=r"it has format 9, .* knows format 2\. A newer pyproducer wrote it"
    ) as refused:
        opened(disk)
    assert "Restore" not in str(refused.value), "a backup has this format, too"


@pytest.mark.parametrize("call", ["open", "write", "force"])
def test_after_a_failed_change_the_whole_file_is_rewritten(call: str) -> None:
    disk, catalog = opened()
    catalog.store()
    catalog.add("t", 0)
    disk.script.fail(call, "catalog*")
    with pytest.raises(OSError, match="Input/output"):
        catalog.store()
    assert not catalog.is_stored
    catalog.add("t", 1)
    catalog.store()
    assert known(opened(disk.crash(1))[1]) == known(catalog)


def test_a_deletion_is_not_forgotten_when_there_is_no_memory_to_store_it(monkeypatch: pytest.MonkeyPatch) -> None:
    disk, catalog = opened()
    first = catalog.add("t", 0)
    catalog.store()
    catalog.remove(first.log_id)

    def without_memory(*_: object) -> dict[str, object]:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(catalog, "_content", without_memory)
        with pytest.raises(MemoryError):
            catalog.store()
    catalog.store()
    assert opened(disk.crash(1))[1].entries() == []


def test_changes_as_large_as_the_catalog_make_it_rewritten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_producer.broker.storage.tiered.catalog_file._MIN_CHANGED_BYTES", 2000)
    disk, catalog = opened()
    for number in range(200):
        catalog.add("t", number)
        catalog.store()
    assert 2 < disk.script.count("rename", "catalog.json*") < 20
    assert known(opened(disk.crash(1))[1]) == known(catalog)


def test_a_flush_writes_what_it_changed_of_the_catalog_and_not_all_of_it() -> None:
    harness = EngineHarness(logs=1000)
    harness.append(0)
    harness.flush()
    harness.append(1)
    harness.disk.script.calls.clear()
    harness.flush()
    written = [call.size for call in harness.disk.script.calls if call.name == "write" and "catalog" in call.path.name]
    assert len(written) == 1
    assert written[0] < 1000
    harness.close()
