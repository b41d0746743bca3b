"""`pyproducer broker --sync`: a batch is acknowledged when the disk has it."""

from __future__ import annotations

from typing import Any

import pytest

from spark_producer.broker import BrokerSettings
from spark_producer.cli import broker
from spark_producer.cli.entry import main


@pytest.mark.parametrize(("arguments", "forced"), [([], False), (["--sync"], True)])
def test_sync_is_off_unless_asked_for(arguments: list[str], forced: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[BrokerSettings] = []

    def serve(*_address: Any, settings: BrokerSettings, **_others: Any) -> None:
        served.append(settings)

    monkeypatch.setattr(broker, "serve", serve)
    main(["broker", "--port", "0", *arguments])
    assert [settings.sync_each_append for settings in served] == [forced]


def test_the_help_names_power_failures(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["broker", "--help"])
    assert "survives a power failure" in " ".join(capsys.readouterr().out.split())
