"""The benchmark of the metrics runs, and knows every event that comes with batches and requests."""

from __future__ import annotations

import pytest

from benchmarks import metrics_cost


def test_it_prints_every_event_for_both_sizes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["metrics_cost", "--rounds", "20", "--writes", "1", "--write-records", "10000"])
    metrics_cost.main()
    page = capsys.readouterr().out
    for name in metrics_cost.events(131072, 1_000_000):
        assert page.count(f"  {name} ") == 2, name
    assert "1,000 topics" in page
    assert page.count("with metrics") == 2


def test_smaller_batches_are_more_batches() -> None:
    large, small = (metrics_cost.events(size, 1_000_000)["batch_drained"][1] for size in (131072, 16384))
    assert small == pytest.approx(8 * large, rel=0.01)
