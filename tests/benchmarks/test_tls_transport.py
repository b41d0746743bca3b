from __future__ import annotations

import pytest

from benchmarks import tls_transport


def test_every_size_of_a_request_is_sent_plain_and_encrypted(capsys: pytest.CaptureFixture[str]) -> None:
    tls_transport.main(["--megabytes", "1", "--rounds", "1"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 6
    for line in lines[2:]:
        _, plain, encrypted, _, *rates = (float(cell.replace(",", "")) for cell in line.strip("| ").split(" | "))
        assert min(plain, encrypted, *rates) > 0
