"""The checker sees everything that can be wrong with what a reader saw, and nothing in what is right."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from spark_producer.exactly_once.protocol import abort, begin, commit, roll_forward
from tests.matrix.cases import PLACES, all_cases
from tests.matrix.checker import Seen, differences, violations
from tests.matrix.duel import micro_batches
from tests.matrix.play import Result
from tests.matrix.results import BEGIN, END, append, as_table, load, write_page
from tests.matrix.rows import Amount, expected, row_of, rows_of_batch, write_files
from tests.matrix.scenes import SCENES, cases

AMOUNT = Amount(batches=2, rows=40)
Rows = dict[int, list[Seen]]


def sound() -> Rows:
    """The expected rows: file 0 in partition 0, file 1 in partition 1, with a gap for the marker after each batch."""
    found: Rows = {0: [], 1: []}
    for batch in range(AMOUNT.batches):
        for row in rows_of_batch(AMOUNT, batch):
            offset = len(found[row.file]) + batch
            found[row.file].append(Seen(offset, row.key.encode(), row.text(AMOUNT.width).encode()))
    return found


def test_there_is_no_order_between_files_of_one_micro_batch() -> None:
    rows = sound()
    offsets = [seen.offset for seen in rows[0]]
    turned = sorted(rows[0], key=lambda seen: -(seen.offset > AMOUNT.rows // 2))
    rows[0] = [seen._replace(offset=offset) for seen, offset in zip(turned, offsets, strict=True)]
    assert [reported.split(":")[0] for reported in violations(expected(AMOUNT), rows)] == ["out of order"]
    assert violations(expected(AMOUNT), rows, together={0: 3, 1: 3}) == []
    assert violations(expected(AMOUNT), rows, together={0: 3, 1: 4}) != []


def test_a_checkpoint_says_which_files_were_read_together(tmp_path: Path) -> None:
    """The second micro-batch has taken up a file that another driver had noted, and its own."""
    for folder, contents in {
        "offsets": {"0": 'v1\n{}\n{"logOffset":0}', "1": 'v1\n{}\n{"logOffset":2}', ".1.crc": ""},
        "sources/0": {str(at): f'v1\n{{"path":"file:///rows/0000{at}-0.txt","batchId":{at}}}' for at in range(4)},
    }.items():
        (tmp_path / folder).mkdir(parents=True)
        for name, content in contents.items():
            (tmp_path / folder / name).write_text(content)
    assert micro_batches(tmp_path) == {0: 0, 1: 1, 2: 1, 3: 3}


def lose(rows: Rows) -> None:
    del rows[0][3]


def double(rows: Rows) -> None:
    last = rows[1][-1]
    rows[1].append(last._replace(offset=last.offset + 1))


def damage(rows: Rows) -> None:
    rows[0][0] = rows[0][0]._replace(value=(rows[0][0].value or b"").replace(b"k0.0", b"k0.1"))


def invent(rows: Rows) -> None:
    foreign = next(rows_of_batch(AMOUNT, 7))
    rows[0].append(Seen(1_000, foreign.key.encode(), foreign.text(60).encode()))


def change_key(rows: Rows) -> None:
    rows[0][0] = rows[0][0]._replace(key=b"k9")


def move(rows: Rows) -> None:
    last = rows[1].pop()
    rows[0].append(last._replace(offset=1_000))


def swap(rows: Rows) -> None:
    first, second = rows[0][0], rows[0][5]  # of one key
    rows[0][0], rows[0][5] = first._replace(key=second.key, value=second.value), second._replace(value=first.value)


def rewind(rows: Rows) -> None:
    rows[1][4] = rows[1][4]._replace(offset=0)


def test_nothing_is_wrong_with_what_is_right() -> None:
    assert violations(expected(AMOUNT), sound()) == []
    assert differences(sound(), sound()) == []


@pytest.mark.parametrize(
    ("tamper", "kind"),
    [
        (lose, "lost-write: 1,"),
        (double, "duplicate: 1,"),
        (damage, "damaged: 1,"),
        (invent, "foreign: 1,"),
        (change_key, "wrong key: 1,"),
        (move, "key in two partitions: 1,"),
        (swap, "out of order: "),
        (rewind, "nonmonotonic offsets: 1,"),
    ],
)
def test_each_kind_of_violation_is_seen(tamper: Callable[[Rows], None], kind: str) -> None:
    rows = sound()
    tamper(rows)
    assert [reported for reported in violations(expected(AMOUNT), rows) if reported.startswith(kind)]


def test_what_is_visible_is_judged_where_rows_may_be_missing() -> None:
    rows = sound()
    lose(rows)
    assert violations(expected(AMOUNT), rows, whole=False) == []
    double(rows)
    assert [reported.partition(":")[0] for reported in violations(expected(AMOUNT), rows, whole=False)] == ["duplicate"]


def test_a_key_moves_only_where_the_topic_gets_more_partitions() -> None:
    rows = sound()
    move(rows)
    assert violations(expected(AMOUNT), rows, keys_move=True) == []
    grown = [case for scene in SCENES for case in cases(scene.settings[0]) if "more partitions" in case.title]
    assert grown
    assert all(case.loose for case in grown)


def test_a_row_that_only_one_reader_has_seen_is_reported() -> None:
    earlier, later = sound(), sound()
    del earlier[0][2], later[1][5]
    assert differences(earlier, later) == [
        "seen only later in partition 0: 1, e.g. 2",
        "seen only at the time in partition 1: 1, e.g. 5",
    ]


def test_the_files_hold_the_rows_in_order(tmp_path: Path) -> None:
    write_files(tmp_path, AMOUNT)
    files = sorted(tmp_path.glob("*.txt"), key=lambda path: path.stat().st_mtime)
    rows = [row_of(line.encode()) for path in files for line in path.read_text().splitlines()]
    assert rows == [row for batch in range(AMOUNT.batches) for row in rows_of_batch(AMOUNT, batch)]


def test_every_place_is_in_the_matrix_and_no_case_twice() -> None:
    cases = list(all_cases())
    assert len({case.name for case in cases}) == len(cases)
    assert {case.faults[-1].place for case in cases} == {place.name for place in PLACES}
    assert list(all_cases()) == cases, "a seed decides a case"


def test_results_outlive_a_run_and_the_last_one_of_a_case_counts(tmp_path: Path) -> None:
    path = tmp_path / "results"
    first = Result("4/B/begin.read:self/1", fired=1, violations=["lost-write: 1"])
    append(path, first)
    append(path, dataclasses.replace(first, violations=[]))
    append(path, Result("4/B/begin.read:self/2", fired=0))
    found = load(path)
    assert [found[name].verdict for name in sorted(found)] == ["exact", "not reached"]
    table = as_table([*found.values(), dataclasses.replace(first, name="3.9/A/a:driver+begin.read:self/3")])
    assert "| `begin.read` |  | 1 of 2 (1 not reached) |" in table
    assert "| `begin.read` after `a` | 0 of 1 (1 **violated**) |  |" in table
    assert table.endswith("exact: 1; not reached: 1; **violated**: 1.\n")


def test_the_page_gets_both_tables_into_its_place(tmp_path: Path) -> None:
    matrix, scenes, page = (tmp_path / name for name in ("matrix", "scenes", "page"))
    append(matrix, Result("4/B/begin.read:self/1", fired=1, reported=["the driver died"], places=["begin.read"]))
    append(scenes, Result("4/B/a thief/1", fired=1, loud="PARTIAL"))
    append(scenes, Result("3.9/A/a thief/1", fired=1))
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    write_page(matrix, scenes, page, of=9)
    text = page.read_text()
    assert "old" not in text
    assert text.startswith(f"before\n{BEGIN}\n\n1 of 9 cases were played, and 2 scenes, from 2")
    assert "| `begin.read` | 1 |" in text
    assert "| a thief | A | B PARTIAL |" in text
    assert text.endswith(f"{END}\nafter\n")
    assert "died" not in matrix.read_text(), "what is for people is kept of bad results alone"


def test_the_failpoints_are_those_after_the_steps() -> None:
    """A step that is renamed, or new, must not fall out of the matrix in silence."""
    steps = {
        found.failpoint if module is not roll_forward else f"redrive.{found.failpoint}"
        for module in (abort, begin, commit, roll_forward)
        for found in vars(module).values()
        if isinstance(found, type) and found.__module__ == module.__name__ and hasattr(found, "failpoint")
    }
    wrappers = {name for name in steps if name.endswith(("redriving", "finishing"))}
    within = {
        f"{wrapper}.{name.partition('.')[2]}" for wrapper in wrappers for name in steps if name.startswith("redrive.")
    }
    places = {place.name for place in PLACES if not place.name.startswith(("task.", "control."))}
    assert places <= steps | within
    missing = {name for name in steps - wrappers if not name.startswith("redrive.")} - places
    assert missing == {"commit.looking", "commit.resolving", "commit.noting"}, (
        "those follow lost answers or other drivers, or are of foreachBatch, which the matrix does not play"
    )
