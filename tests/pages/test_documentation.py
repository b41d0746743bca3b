"""The pages agree with the code: option and column tables, versions of APIs, links, and what may not be in them."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from benchmarks.headlines import comparison, shown
from benchmarks.pages import folder_of
from benchmarks.part import load
from benchmarks.parts import named
from docs.broker_metrics import broker_metrics_page
from docs.errors_page import ADVICE, EXAMPLES, classes, errors_page, row_messages
from docs.update import metrics_page, options_page
from spark_producer import cli, config
from spark_producer.cli.entry import main
from spark_producer.config import profiles, unsupported, unsupported_reads
from spark_producer.datasource.write.driver.schema import COLUMNS
from spark_producer.protocol import APIS
from spark_producer.record.columns import COLUMN_NAMES

ROOT = Path(__file__).parent.parent.parent
README = ROOT / "README.md"
COMPATIBILITY = ROOT / "docs" / "compatibility.md"
DECISIONS = ROOT / "docs" / "decisions"
RECORDS = sorted(DECISIONS.glob("[0-9]*.md"))
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "tests").glob("*.md")),
]
UPDATE = "run `make docs`"


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def test_the_index_shows_examples_of_the_readme() -> None:
    """The examples of all pages run in spark/test_readme.py, where each has a marker of its own."""
    examples = re.findall(
        r"^```python\n(.*?)^```$", (ROOT / "docs" / "index.md").read_text(encoding="utf-8"), re.M | re.S
    )
    assert examples
    assert all(example in README.read_text(encoding="utf-8") for example in examples)


def test_the_options_page_is_that_of_the_table() -> None:
    assert (ROOT / "docs" / "options.md").read_text(encoding="utf-8") == options_page(), UPDATE


def test_the_metrics_page_is_that_of_the_table() -> None:
    assert (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8") == metrics_page(), UPDATE
    assert (ROOT / "docs" / "broker_metrics.md").read_text(encoding="utf-8") == broker_metrics_page(), UPDATE


def test_the_errors_page_is_that_of_the_classes_and_tables() -> None:
    assert (ROOT / "docs" / "errors.md").read_text(encoding="utf-8") == errors_page(), UPDATE


def test_the_errors_page_says_what_to_do_about_every_class_and_no_other() -> None:
    assert set(ADVICE) == classes()


def test_every_example_of_the_errors_page_is_a_row_of_a_kind_of_its_own() -> None:
    """An example that a check lets pass would be missing, and one that another check stops would be there twice."""
    messages = [message for _, message in row_messages()]
    assert len(set(messages)) == len(messages) == len(EXAMPLES) + 3


@pytest.mark.parametrize("name", profiles.PROFILES)
def test_the_profiles_in_conf_are_those_of_the_table(name: str) -> None:
    assert (ROOT / "conf" / f"{name}.properties").read_text(encoding="utf-8") == profiles.render_properties(name), (
        UPDATE
    )


def test_the_readme_is_short() -> None:
    text = README.read_text(encoding="utf-8")
    assert len(text.split()) <= 900
    assert text.count("](") <= 15
    assert {"$ make quickstart", "$ make test"} <= {" ".join(line.split()[:3]) for line in text.splitlines()}


@pytest.mark.parametrize("page", [README, *sorted((ROOT / "docs").glob("*.md"))], ids=lambda page: page.name)
def test_code_fits_into_80_columns(page: Path) -> None:
    """A screen of 1280 pixels shows 80 columns beside the navigation. A text without a space cannot be broken."""
    for language, block in re.findall(
        r"^```(python|sql|diff|console)\n(.*?)^```$", page.read_text("utf-8"), re.M | re.S
    ):
        long = [
            line for line in block.splitlines() if len(line) > 80 and not re.fullmatch(r" *(\S+: )?\S+;?( \S+)?", line)
        ]
        if language == "console":  # the site wraps these, as terminals do; a comment beside a command stays beside it
            long = [line for line in long if re.match(r"\$ .* # ", line)]
        assert long == [], language


def test_the_headline_figures_of_the_readme_are_those_of_the_benchmarks() -> None:
    """The two that stand there, with what they are of Spark's sink; rounded as the page of the benchmarks has them."""
    readme = README.read_text(encoding="utf-8")
    for part in named(["small", "micro-batches"]):
        measured = load(folder_of(ROOT / "docs" / "benchmarks.md"), part.name)
        assert measured is not None
        (headline,) = part.headlines(measured.results)
        (line,) = [line for line in readme.splitlines() if line.startswith(f"* **{headline.title.split(',')[0]}: ")]
        assert f" {shown(headline.ours)} {headline.unit}**" in line
        reported = [
            comparison(headline, value).removesuffix(" than")
            for name, value in headline.others.items()
            if "Spark" in name
        ]
        assert set(re.findall(r"[\d.]+× (?:faster|slower)", line)) <= set(reported)
        assert f"{reported[0]} than Spark's Kafka sink" in line


def test_the_pages_name_what_a_zip_for_py_files_does_not_bring() -> None:
    """The page names all dependencies of the package, except for Spark."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        needed = {re.split(r"[^\w-]", line)[0] for line in tomllib.load(file)["project"]["dependencies"]}
    section = (
        (ROOT / "docs" / "deploying.md").read_text(encoding="utf-8").partition("--py-files`\n")[2].partition("\n## ")[0]
    )
    assert set(re.findall(r"^\* `([\w-]+)`$", section, re.MULTILINE)) == needed


def test_the_extras_of_pages_and_messages_exist() -> None:
    """An unknown extra is only a warning of pip's, and what it should have brought is missing."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        extras = set(tomllib.load(file)["project"]["optional-dependencies"])
    table = re.findall(r"^\| `pyproducer\[(\w+)\]` \|", COMPATIBILITY.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(table) == sorted(extras)
    for path in [*PAGES, *(ROOT / "spark_producer").rglob("*.py"), *(ROOT / "jobs").glob("*.py")]:
        named = re.findall(r"(?:pyproducer|'\.)\[(\w+)\]", path.read_text(encoding="utf-8"))
        assert set(named) <= extras, path.name


def test_the_columns_of_the_page_are_those_of_the_sink() -> None:
    rows = {}
    for line in (ROOT / "docs" / "columns.md").read_text(encoding="utf-8").splitlines():
        match = re.match(r"\| `(\w+)` \| ", line)
        if match and match[1] in COLUMN_NAMES and len(cells(line)) == 4:
            rows[match[1]] = cells(line)[1].replace("`", "")
    assert rows == {name: description for name, (_, description) in COLUMNS.items()}
    assert set(rows) == set(COLUMN_NAMES)


def test_the_defaults_that_differ_from_java_are_all_named() -> None:
    page = COMPATIBILITY.read_text(encoding="utf-8")
    for field in dataclasses.fields(config.ProducerConfig):
        java = field.metadata["option"].kafka_default
        if java:
            row = next(line for line in page.splitlines() if line.startswith(f"| `{config.kafka_name(field.name)}` |"))
            assert cells(row)[1].split()[0] == java
            assert cells(row)[2] == str(field.default)


def test_the_versions_of_the_apis_are_those_of_the_protocol() -> None:
    page = COMPATIBILITY.read_text(encoding="utf-8")
    found = {}
    for names, versions in re.findall(r"^\| ([A-Z]\w+.*?) \| (\d+ – \d+(?:, \d+ – \d+)*) \|$", page, re.MULTILINE):
        for name, span in zip(re.findall(r"[A-Z]\w+", names), versions.split(", "), strict=True):
            low, high = span.split(" – ")
            found[name] = (int(low), int(high))
    assert found == {api.name: (api.min_version, api.max_version) for api in APIS.values()}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        if not target.startswith("https://"):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def anchors(page: Path) -> set[str]:
    """Return GitHub's anchors of the headings of a page."""
    prose = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", prose, re.MULTILINE)  # not the comments of code
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_into_pages_lead_to_a_heading(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", page.read_text(encoding="utf-8")):
        assert anchor in anchors(page.parent / target if target else page), f"{page.name} links to {target}#{anchor}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_option_names_in_pages_exist(page: Path) -> None:
    known = {config.data_source_name(name) for name in config.KAFKA_FIELDS}
    refused = (*unsupported.UNSUPPORTED, *unsupported_reads.UNSUPPORTED_READS)
    known |= {unsupported.KAFKA_PREFIX + name for name in (*config.ALIASES, *config.CONSUMER_FIELDS, *refused)}
    if page.name == "CHANGELOG.md":
        known |= {config.data_source_name(name) for name in config.PRODUCER_NAMES}  # former names, too
    text = re.sub(r"Formerly `[^`]+`", "", page.read_text(encoding="utf-8"))
    for name in re.findall(r"[`\"'](kafka\.[a-z]+(?:\.[a-z]+)*)[`\"']", text):
        assert name in known, f"{page.name} speaks of {name}"


def test_the_commands_are_named_wherever_people_look_for_them(capsys: pytest.CaptureFixture[str]) -> None:
    """Each module of the package `cli` with a function `add` is a command, and all of them can be run."""
    modules = {path.stem for path in Path(cli.__file__).parent.glob("*.py") if "def add(" in path.read_text("utf-8")}
    page = (ROOT / "docs" / "command_line.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^## (\w+)$", page, re.MULTILINE)) == modules, "docs/command_line.md"
    assert cli.__doc__ is not None
    first_line = cli.__doc__.partition("\n")[0]
    assert set(re.findall(r"pyproducer ([\w| ]+)`", first_line)[0].split(" | ")) == modules, "cli/__init__.py"
    with pytest.raises(SystemExit):
        main(["--help"])
    listed = re.findall(r"^    (\w+)", capsys.readouterr().out, re.MULTILINE)
    assert set(listed) == modules, "cli/entry.py"


def test_the_index_of_decisions_names_each_record_by_its_title() -> None:
    index = (DECISIONS / "README.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\* \[(\d{4})\]\(([^)]+)\): (.+)$", index, re.MULTILINE)
    titles = {path.name: path.read_text(encoding="utf-8").partition("\n")[0] for path in RECORDS}
    assert {name: f"# {number}. {title}" for number, name, title in listed} == titles
    assert len({name[:4] for name in titles}) == len(titles), "two records have one number"


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.name[:4])
def test_a_decision_has_a_context_a_decision_and_a_consequence(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert headings == ([] if "\nSuperseded by [" in text else ["Context", "Decision", "Consequence"])


def test_make_targets_in_the_pages_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for page in PAGES:
        given = set(re.findall(r"[`$] ?make ([a-z-]+)", page.read_text(encoding="utf-8")))
        assert given <= targets, page.name


def test_no_machine_is_named_in_tracked_files() -> None:
    """The repository has no paths of one machine."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    files = listed.stdout.split() or [str(page) for page in PAGES]
    pattern = re.compile(r"(?<![\w.])/(?:home|root|work|Users)/\w")
    for name in files:
        path = ROOT / name
        if path.suffix in {".md", ".py", ".toml", ".conf", ".properties", ""} and path.is_file():
            found = pattern.search(path.read_text(encoding="utf-8", errors="replace"))
            assert found is None, f"{name}: {found and found[0]}"
