"""The times of records, `--timestamp`: of any unit and with any digits, rounded down to milliseconds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spark_producer.broker import LocalBroker
from spark_producer.cli.cell_parsing import converted, moments, partitions
from spark_producer.cli.entry import main
from tests.support.read_back import read_topic

SECOND = 1_357_017_420
ZONES = (None, "UTC", "Europe/Berlin", "+05:30")


def milliseconds(cells: Any) -> list[Any]:
    found: Any = converted(pa.record_batch({"at": cells}), "at", moments, 0)
    return list(found.to_pylist())


@pytest.mark.covers("COM24")
@pytest.mark.parametrize("zone", ZONES)
def test_times_of_every_unit_are_rounded_down(zone: str | None) -> None:
    assert milliseconds(pa.array([SECOND, None, -1], pa.timestamp("s", zone))) == [SECOND * 1000, None, -1000]
    assert milliseconds(pa.array([SECOND * 1000 + 7, -1], pa.timestamp("ms", zone))) == [SECOND * 1000 + 7, -1]
    fine = [SECOND * 10**6 + 7_999, None, -1, -1_000, -1_001, 0, 999]
    assert milliseconds(pa.array(fine, pa.timestamp("us", zone))) == [SECOND * 1000 + 7, None, -1, -1, -2, 0, 0]
    finer = [SECOND * 10**9 + 7_999_999, None, -1, -1_000_000, -1_000_001, 999_999]
    assert milliseconds(pa.array(finer, pa.timestamp("ns", zone))) == [SECOND * 1000 + 7, None, -1, -1, -2, 0]
    assert milliseconds(pa.array(finer, pa.timestamp("ns", zone)).slice(1, 3)) == [None, -1, -1]


@pytest.mark.covers("COM24")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2013-01-01T05:17:00.007999999Z", SECOND * 1000 + 7),
        ("2013-01-01 05:17:00.0079999", SECOND * 1000 + 7),
        ("2013-01-01T07:17:00.007999999+02:00", SECOND * 1000 + 7),
        ("2013-01-01T05:17:00.007999999999Z", SECOND * 1000 + 7),
        ("2013-01-01T05:17:00.1Z", SECOND * 1000 + 100),
        ("1969-12-31T23:59:59.999999999Z", -1),
        ("1969-12-31T23:59:59.998999999", -2),
        ("2500-01-01T00:00:00.123456789Z", 16_725_225_600_123),
        ("2013-01-01", 1_356_998_400_000),
        (str(SECOND * 1000 + 7), SECOND * 1000 + 7),
    ],
)
def test_texts_with_any_digits_are_rounded_down(text: str, expected: int) -> None:
    plain = pa.array([text, None])
    kinds = [plain, plain.dictionary_encode(), plain.cast(pa.large_string()), plain.cast(pa.string_view())]
    for cells in kinds:
        assert milliseconds(cells) == [expected, None]


@pytest.mark.covers("COM24")
def test_dates_and_coded_times() -> None:
    days = pa.array([15_706, -1, None], pa.date32())
    assert milliseconds(days) == milliseconds(days.cast(pa.date64())) == [1_356_998_400_000, -86_400_000, None]
    times = pa.array([SECOND * 10**9 + 1] * 3, pa.timestamp("ns"))
    assert milliseconds(times.dictionary_encode()) == [SECOND * 1000] * 3
    assert (
        milliseconds(pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), times.slice(1)))
        == [SECOND * 1000] * 3
    )


@pytest.mark.covers("COM24")
@pytest.mark.parametrize("cells", [pa.array([0, 2**62], pa.timestamp("s")), pa.array([0, 2**63 + 1], pa.uint64())])
def test_a_time_beyond_all_milliseconds_is_named(cells: Any) -> None:
    with pytest.raises(pa.ArrowInvalid, match=r"^row 2, column 'at': "):
        milliseconds(cells)


@pytest.mark.covers("COM24")
def test_times_with_nine_digits_of_a_file(embedded_broker: LocalBroker, topic: str, tmp_path: Path) -> None:
    embedded_broker.create_topic(topic, 1)
    (tmp_path / "x.jsonl").write_bytes(
        b'{"at": "2013-01-01T05:17:00.007999999Z"}\n{"at": "2013-01-01T05:17:00.1234567Z"}'
    )
    arguments = ["write", "--timestamp", "at", str(tmp_path / "x.jsonl"), topic]
    assert main([*arguments, "--bootstrap-servers", embedded_broker.bootstrap_servers]) == 0
    found = [row.timestamp_ms for row in read_topic(embedded_broker.bootstrap_servers, topic)]
    assert found == [SECOND * 1000 + 7, SECOND * 1000 + 123]


@pytest.mark.covers("COM24")
def test_help_says_how_times_are_rounded(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["write", "--help"])
    assert "rounded down to milliseconds" in " ".join(capsys.readouterr().out.split())


@pytest.mark.covers("COM24")
def test_partitions_are_texts_of_decimal_digits() -> None:
    def of(*texts: str | None) -> Any:
        found: Any = converted(pa.record_batch({"p": pa.array(texts, pa.string())}), "p", partitions, 0)
        return found.to_pylist()

    assert of("7", " 10 ", None) == [7, 10, None]
    assert of(None) == [None]
    for text in ("0x10", "1.0", "", "٣"):
        with pytest.raises(pa.ArrowInvalid, match=f"^row 2, column 'p': {text!r} is not the number of a partition$"):
            of("1", text)
