"""The benchmarks of codecs: every line is there, and the compared sizes are those of its text."""

from __future__ import annotations

import zlib

import pytest

from benchmarks import codecs, zstd_levels
from spark_producer.record.codecs import DEFAULT_LEVELS, Codec
from spark_producer.record.compression_ratio import SAFETY


def test_each_codec_has_a_line_beside_its_library() -> None:
    lines = codecs.table(16_384, rounds=1)
    names = [line.split("|")[1].strip() for line in lines[2:]]
    assert names[:5] == ["none", "snappy", "lz4", f"zstd-{DEFAULT_LEVELS[Codec.ZSTD]}", "zlib-6"]
    assert all(float(line.split("|")[2]) > 2 for line in lines[3:]), "JSON packs to less than half"


@pytest.mark.parametrize("kind", zstd_levels.KINDS)
def test_each_kind_of_records_has_a_line_with_all_levels(kind: str) -> None:
    data = zstd_levels.records(kind, 100_000)
    assert 90_000 < len(data) <= 100_000
    assert len(zlib.compress(data)) > 2_000, "it is no single record over and over again"
    head, _, line = zstd_levels.table([kind], 100_000, rounds=1)
    assert head.count("(default)") == 1
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[0] == kind
    assert float(cells[1]) == pytest.approx(zstd_levels.java_ratio(data), abs=0.01)
    assert [float(cell.split(",")[0]) > 1 for cell in cells[2:]] == [True] * len(zstd_levels.LEVELS)


def test_javas_batches_have_their_size_compressed() -> None:
    data = zstd_levels.records("random numbers and a text as bytes", 500_000)
    ratio = zstd_levels.java_ratio(data)
    piece = int(zstd_levels.JAVA_BATCH / SAFETY * ratio)
    packed = zstd_levels.packed_size(zstd_levels.JAVA_LEVEL, data[: 10 * piece], piece) / 10
    assert packed == pytest.approx(zstd_levels.JAVA_BATCH / SAFETY, rel=0.02)
