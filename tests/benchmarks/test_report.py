"""The benchmarks' own arithmetic: accounts of processes, medians, ratios, choice of contenders."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from benchmarks.__main__ import arguments
from benchmarks.bulk import from_json, headlines, in_turns, to_json
from benchmarks.contenders import CONTENDERS, chosen, librdkafka, rows_in, takes_part
from benchmarks.measure import Meter, Run
from benchmarks.report import Result, SceneResults, draw, ratios, section
from benchmarks.scenes import all_scenes


def run(rate: float, cpu: float, rows: int = 1_000_000) -> Run:
    return Run(rows, rows / rate, cpu * rows / 1e6, 0.5 * rows / 1e6, 0.25 * rows / 1e6, 1.0, 100 * 2**20, 118 * rows)


def results() -> SceneResults:
    rates = {"pyproducer": [1e6, 3e6, 2e6], "spark": [1e6, 1e6, 0.5e6], "confluent": [1e5, 1e5, 1e5], "noop": [9e6] * 3}
    found = [Result(one, [run(rate, 0.5) for rate in rates[one.name]]) for one in chosen(list(rates))]
    return SceneResults(all_scenes(1_000_000)["small"], found)


def test_the_table_has_medians_and_ratios() -> None:
    page = section(results(), warmups=1)
    row = next(line for line in page.splitlines() if line.startswith("| pyproducer |"))
    assert row.split("|")[2:-1] == [
        " 2.00; 1.00–3.00 ", " 2.00 ", " 0.50 ", " 0.50 ", " 0.25 ", " 100 ", " 118.0 ",
    ]  # fmt: skip
    assert ratios(results()) == ["| 100 B values, 4 partitions | **2.00×** (1.00×) |  |  |"]
    assert "3 rounds, after 1" in page
    assert "/tmp" not in page


def test_what_compresses_is_compared_with_sparks_sink_and_the_same_codec() -> None:
    speeds = {"pyproducer-lz4": 2e6, "spark-lz4": 1e6, "pyproducer-zstd": 3e6, "spark-zstd": 1e6}
    found = [Result(one, [run(speeds[one.name], 0.5)]) for one in chosen(list(speeds))]
    scene = SceneResults(all_scenes(1_000_000)["compressed"], found)
    page = section(scene, warmups=1)
    assert "Events of a web shop as JSON" in page
    rates = [line.split("|")[3].strip() for line in page.splitlines() if line.startswith(("| pyproducer", "| Spark"))]
    assert rates == ["2.00", "1.00", "3.00", "1.00"]
    assert [row.split("|")[1:3] for row in ratios(scene)] == [
        [" JSON of about 200 B, compressed, 4 partitions, lz4 ", " **2.00×** (1.00×) "],
        [" JSON of about 200 B, compressed, 4 partitions, zstd ", " **3.00×** (1.00×) "],
    ]


def secured() -> SceneResults:
    """Each round has a speed of its own, as on a machine that others use too: TLS takes 60 % of it, or 50 %, or 40 %."""
    rates = {
        "pyproducer": [1e6, 4e6, 2e6], "pyproducer-ssl": [0.6e6, 2e6, 0.8e6], "spark-ssl": [0.5e6] * 3,
        "spark-tuned-ssl": [0.4e6] * 3, "confluent-batches-ssl": [0.2e6] * 3,
    }  # fmt: skip
    cpu = {"pyproducer": 0.0, "pyproducer-ssl": 0.059}
    found = [
        Result(one, [run(rate, 0.5 + cpu.get(one.name, 0.0)) for rate in rates[one.name]])
        for one in chosen(list(rates))
    ]
    return SceneResults(all_scenes(1_000_000)["tls"], found)


def test_the_price_of_tls_is_that_within_a_round() -> None:
    page = section(secured(), warmups=1)
    claims = [line for line in page.splitlines() if line.startswith("- pyproducer")]
    assert claims == ["- pyproducer, SSL ÷ pyproducer: **0.50×** the rate, +0.50 ns of Python's CPU a byte"]
    (row,) = ratios(secured())
    assert [cell.partition("×")[0] for cell in row.split("|")[2:-1]] == [" **1.60", " **2.00", " **4.00"]
    rates = [line.split("|")[3].strip() for line in page.splitlines() if line.startswith(("| pyproducer", "| Spark"))]
    assert rates == ["", "1.60", "1.00", "0.80"], "without TLS nothing is compared with it"
    assert "TLS 1.3 with AES-256-GCM" in page


def test_over_tls_the_first_page_hears_of_the_rate_beside_others_over_tls() -> None:
    (headline,) = headlines(to_json(secured(), warmups=2))
    assert headline.ours == 0.8
    assert headline.others == {
        "Spark's Kafka sink": 0.5, "Spark's Kafka sink, tuned": 0.4, "confluent-kafka over Arrow": 0.2,
    }  # fmt: skip


def test_only_scenes_that_name_them_have_contenders_over_tls() -> None:
    for scene in all_scenes(8).values():
        protocols = {one.protocol for one in CONTENDERS if takes_part(one, scene)}
        assert protocols == ({"PLAINTEXT", "SSL", "SASL_SSL"} if scene.secured else {"PLAINTEXT"}), scene.name


def test_librdkafka_gets_the_same_certificates() -> None:
    java = {"security.protocol": "SSL", "ssl.truststore.type": "PEM", "ssl.truststore.location": "ca.pem"}
    assert librdkafka(java) == {"security.protocol": "SSL", "ssl.ca.location": "ca.pem"}


def test_a_picture_is_drawn(tmp_path: Path) -> None:
    draw(results(), tmp_path / "plot.svg")
    assert "</svg>" in (tmp_path / "plot.svg").read_text()


def test_a_bar_that_is_cut_has_a_mark_and_its_number(tmp_path: Path) -> None:
    """The other bars end at their value, with their number to the right."""
    seconds = {"pyproducer": 0.4, "pyproducer-tuned": 0.4, "spark": 0.7, "confluent-batches": 1.0, "confluent": 9.0}
    found = [Result(one, [run(1e6, seconds[one.name] - 0.5)]) for one in chosen(list(seconds))]
    draw(SceneResults(all_scenes(1_000_000)["small"], found), tmp_path / "plot.svg")
    picture = (tmp_path / "plot.svg").read_text()
    assert picture.count('id="broken-off-') == 1
    assert "<!-- 9.00 -->" in picture
    draw(SceneResults(all_scenes(1_000_000)["small"], found[:-1]), tmp_path / "plot.svg")
    assert 'id="broken-off-' not in (tmp_path / "plot.svg").read_text()


@pytest.mark.parametrize(
    ("python", "colour"), [(7.0, "#2ca02c"), (0.04, "#ff7f0e")], ids=["green, as Python's part", "orange, as the JVM's"]
)
def test_after_the_mark_a_bar_has_the_colour_of_its_end(tmp_path: Path, python: float, colour: str) -> None:
    """Without it, a bar whose JVM's part is wider than the picture would look like the JVM's alone."""
    seconds = {"pyproducer": 0.4, "spark": 0.7, "confluent-batches": 1.0}
    found = [Result(one, [run(1e6, seconds[one.name] - 0.5)]) for one in chosen(list(seconds))]
    found += [Result(one, [replace(run(1e6, python), jvm_cpu=9.0 - python)]) for one in chosen(["confluent"])]
    draw(SceneResults(all_scenes(1_000_000)["small"], found), tmp_path / "plot.svg")
    _, found_end, end = (tmp_path / "plot.svg").read_text().partition('<g id="end-')
    assert found_end
    assert f"fill: {colour}" in end.partition("</g>")[0]


def test_the_picture_has_the_numbers_of_the_table(tmp_path: Path) -> None:
    """The median of sums is not the sum of medians."""
    (contender,) = chosen(["pyproducer"])
    parts = ((0.0, 0.3), (0.1, 0.1), (0.3, 0.0))
    measured = [replace(run(1e6, python), jvm_cpu=jvm) for python, jvm in parts]
    scene = SceneResults(all_scenes(1_000_000)["small"], [Result(contender, measured)])
    draw(scene, tmp_path / "plot.svg")
    assert "<!-- 0.30 -->" in (tmp_path / "plot.svg").read_text()


def test_a_scene_may_name_its_contenders_and_give_some_fewer_rows() -> None:
    scenes = all_scenes(4_000_000)
    thousand = scenes["thousand-partitions"]
    named = ["floor", "pyproducer", "pyproducer-32-mib", "pyproducer-tuned", "spark-tuned"]
    assert [one.name for one in CONTENDERS if takes_part(one, thousand)] == named
    assert [rows_in(one, thousand) for one in chosen(named)] == [4_000_000] * 4 + [1_000_000]
    assert not [one for one in chosen(["pyproducer-32-mib"]) if takes_part(one, scenes["small"])]
    assert [rows_in(one, scenes["small"]) for one in chosen(["spark", "confluent"])] == [4_000_000, 200_000]


def test_contenders_and_scenes_are_chosen_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert [one.name for one in chosen(["spark", "noop"])] == ["noop", "spark"]
    assert chosen([]) == list(CONTENDERS)
    assert list(all_scenes(8)) == [
        "small", "many-partitions", "thousand-partitions", "large", "mixed", "compressed", "exactly-once", "tls", "tls-large",
    ]  # fmt: skip
    for given in (["--only", "none"], ["--parts", "nowhere"]):
        with pytest.raises(SystemExit):
            arguments(given)
        assert "unknown" in capsys.readouterr().err


def test_a_scene_that_names_its_contenders_has_no_others() -> None:
    scenes = all_scenes(8)
    names = {name: [one.name for one in CONTENDERS if takes_part(one, scene)] for name, scene in scenes.items()}
    assert names["mixed"] == ["noop", "floor", "pyproducer", "pyproducer-portable", "spark", "spark-tuned"]
    assert {"confluent", "pyproducer-tuned"} <= set(names["small"])
    assert all(one.endswith(("lz4", "zstd", "zstd-3")) for one in names["compressed"])


def test_a_scene_is_kept_as_json_and_comes_back() -> None:
    kept = json.loads(json.dumps(to_json(results(), warmups=2)))
    assert section(from_json(kept), kept["warmups"]) == section(results(), warmups=2)
    kept["runs"]["of former times"] = kept["runs"]["spark"]
    assert section(from_json(kept), kept["warmups"]) == section(results(), warmups=2)


def test_the_first_page_hears_of_the_rate_beside_the_others() -> None:
    (headline,) = headlines(to_json(results(), warmups=2))
    assert (headline.ours, headline.others, headline.lower_is_better) == (2.0, {"Spark's Kafka sink": 1.0}, False)
    other = SceneResults(all_scenes(1_000_000)["large"], results().results)
    assert headlines(to_json(other, warmups=2)) == []


BUSY_PARENT = """
import os, sys, time
idle = os.fork()
if idle == 0:
    time.sleep(600)
sys.stdin.readline()
busy = os.fork()
end = time.process_time() + 0.3
while time.process_time() < end:
    pass
if busy == 0:
    os.write(1, b"worked\\n")
    time.sleep(600)
os.kill(idle, 9)
os.waitpid(idle, 0)
os.write(1, b"worked\\n")
sys.stdin.readline()
os.kill(busy, 9)
"""


def test_cpu_of_parent_and_children_are_distinguished() -> None:
    with subprocess.Popen([sys.executable, "-c", BUSY_PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as driver:
        assert driver.stdin is not None
        assert driver.stdout is not None
        commands, answers = driver.stdin, driver.stdout

        def work() -> None:
            commands.write(b"\n")
            commands.flush()
            assert [answers.readline(), answers.readline()] == [b"worked\n"] * 2

        measured = Meter(driver.pid, os.getpid()).measure(500_000, work)
        commands.close()
        driver.wait(30)
    # Each burns 0.3 s of CPU; the kernel's clock ticks are 0.01 s.
    assert 0.25 < measured.jvm_cpu < 0.59
    assert 0.25 < measured.python_cpu < 0.59
    assert measured.worker_peak > 1_000_000
    assert measured.per_million(measured.jvm_cpu) == 2 * measured.jvm_cpu
    assert measured.rate == 500_000 / measured.seconds


def test_in_every_round_each_contender_runs_once_and_follows_all_others_in_the_end() -> None:
    names = ["floor", "ours", "theirs", "tuned"]
    rounds = [in_turns(names, number) for number in range(40)]
    assert all(sorted(order) == names for order in rounds)
    before = {(one, following) for order in rounds for one, following in pairwise(order)}
    assert len(before) == len(names) * (len(names) - 1)
