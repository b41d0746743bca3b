"""The benchmark of the metrics runs, and knows every event that comes with batches and requests."""

from __future__ import annotations

import pytest

from benchmarks import metrics_cost


def test_it_prints_every_event_for_both_sizes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["metrics_cost", "--rounds", "20", "--pairs", "2", "--records", "10000"])
    metrics_cost.main()
    page = capsys.readouterr().out
    for name in metrics_cost.EVENTS:
        assert page.count(f"  {name} ") == 2, name
    assert "1,000 topics" in page
    assert page.count("measured over 2 pairs") == 2


def test_the_interval_holds_the_median() -> None:
    low, middle, high = metrics_cost.interval([float(number) for number in range(100)])
    assert low < middle == 49.5 < high
