"""The deployments of `make deployments`: two of them, their judge, and the table of the page."""

from __future__ import annotations

import json

import pytest

from tests.platforms import deployments
from tests.platforms.deployments import DEPLOYMENTS, ROWS, judged

WHOLE, LACKING = DEPLOYMENTS[0], next(each for each in DEPLOYMENTS if each.wanted)


@pytest.mark.spark
@pytest.mark.nightly
@pytest.mark.timeout(900)  # the job and the cluster have deadlines of their own
@pytest.mark.parametrize("name", ["read-only root, no home", "standalone, two workers that lack crc32c"])
def test_a_deployment(name: str) -> None:
    (deployment,) = [each for each in DEPLOYMENTS if each.name == name]
    assert deployments.outcome(deployment)["wrong"] == ""


def printed(rows: range) -> str:
    return json.dumps({"values": [f"{row}|/app" for row in rows], "java": "17", "spark": "4.3.0"})


@pytest.mark.parametrize(
    ("rows", "wrong"),
    [
        (printed(range(ROWS)), ""),
        (printed(range(1, ROWS)), "999 rows instead of 1000, each once"),
        (printed(range(ROWS + 1)), "1001 rows instead of 1000, each once"),
        ("", "nothing was printed"),
    ],
)
def test_a_job_must_have_each_row_once(rows: str, wrong: str) -> None:
    assert judged(WHOLE, rows, "")["wrong"] == wrong


def test_a_job_that_lacks_packages_must_say_so() -> None:
    said = f"ModuleNotFoundError: {LACKING.wanted}"
    assert judged(LACKING, "", said)["wrong"] == ""
    assert judged(LACKING, "", "AttributeError")["wrong"] == "it did not say so: AttributeError"
    assert "did not say" in judged(LACKING, printed(range(ROWS)), said)["wrong"]


def test_the_page_shows_what_was_tried() -> None:
    page = deployments.PAGE.read_text(encoding="utf-8")
    assert deployments.with_table(page, deployments.load()) == page
    assert {line["name"]: line["wrong"] for line in deployments.load()} == {each.name: "" for each in DEPLOYMENTS}
    said = {line["name"]: line.get("said", "") for line in deployments.load()}
    assert said == {each.name: each.wanted for each in DEPLOYMENTS}, "make deployments has not been through"
    with pytest.raises(ValueError, match="no place"):
        deployments.with_table("", [])
