"""Control records: keys and values of markers (KIP-98), against kafka-python's reader and given bytes."""

from __future__ import annotations

import pytest

from spark_producer.errors import CorruptRecord
from spark_producer.record.control import (
    ControlType,
    control_key,
    end_transaction_value,
    leader_change_value,
    read_control_key,
)


@pytest.mark.parametrize("control_type", ControlType)
def test_keys_are_read_as_written(control_type: ControlType) -> None:
    assert control_key(control_type).hex() == f"0000{control_type:04x}"
    assert read_control_key(control_key(control_type)) == control_type


def test_unknown_types_and_longer_keys_are_tolerated() -> None:
    assert read_control_key(bytes.fromhex("00000063")) == 99
    assert read_control_key(bytes.fromhex("00010001ffff")) == ControlType.COMMIT


@pytest.mark.parametrize("key", [None, b"", b"\x00\x00\x00", b"\xff\xff\x00\x01"])
def test_damaged_keys_are_named(key: bytes | None) -> None:
    with pytest.raises(CorruptRecord, match="key of a control record"):
        read_control_key(key)


def test_the_end_of_a_transaction_is_version_0_with_the_coordinators_epoch() -> None:
    assert end_transaction_value(7).hex() == "000000000007"


def test_a_leader_change_is_version_0_with_compact_arrays() -> None:
    assert leader_change_value(1, [1, 2], [2]).hex() == (
        "0000" "00000001" "03" "0000000100" "0000000200" "02" "0000000200" "00"
    )  # fmt: skip
