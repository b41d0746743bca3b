"""Control records: keys of markers (KIP-98), from given bytes."""

from __future__ import annotations

import pytest

from spark_producer.errors import CorruptRecord
from spark_producer.record.control import ControlType, read_control_key


@pytest.mark.parametrize("control_type", ControlType)
def test_keys_are_version_0_and_the_type(control_type: ControlType) -> None:
    assert read_control_key(bytes.fromhex(f"0000{control_type:04x}")) == control_type


def test_unknown_types_and_longer_keys_are_tolerated() -> None:
    assert read_control_key(bytes.fromhex("00000063")) == 99
    assert read_control_key(bytes.fromhex("00010001ffff")) == ControlType.COMMIT


@pytest.mark.parametrize("key", [None, b"", b"\x00\x00\x00", b"\xff\xff\x00\x01"])
def test_damaged_keys_are_named(key: bytes | None) -> None:
    with pytest.raises(CorruptRecord, match="key of a control record"):
        read_control_key(key)
