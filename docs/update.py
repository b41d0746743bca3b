"""Writes the option tables of README.md and docs/options.md, and the profiles in conf/, anew from the code: `make docs`.

Owns: where the tables stand. Must not know: the options.
"""

from __future__ import annotations

from pathlib import Path

from spark_producer import profiles, refused
from spark_producer.config import render_markdown

ROOT = Path(__file__).resolve().parent.parent
BEGIN = "<!-- options: made by `pyproducer options --markdown` -->\n"
END = "<!-- end of options -->\n"

OPTIONS_PAGE = """# Options

This page is made by `make docs` from the table in `spark_producer/config.py`. `pyproducer options` prints the same.

Options with the prefix `kafka.` are those of Kafka's producer, under its names; `Producer` takes them without the prefix.
The others belong to the sink. Times are in milliseconds, sizes in bytes. Letter case does not matter. An unknown option, a
bad value, or two options that contradict each other are one clear error on the driver, before any task starts.

"""

PROFILES_SECTION = """
## Profiles

`.option("profile", "latency")`, or `Producer({"profile": "latency", …})`, sets several options at once. What is set beside it
wins. The same as files, with a reason for each value: `conf/latency.properties` and so on. A file of your own works as well,
`.option("profile", "path/to/producer.properties")`: names are those of Kafka's tools, without the prefix `kafka.`.

"""

REFUSED_SECTION = """
## Options of Kafka that have no place here

They are errors, with these reasons, and never silently ignored.

"""


def options_page() -> str:
    """The whole of docs/options.md."""
    options = OPTIONS_PAGE + render_markdown()
    return options + PROFILES_SECTION + profiles.render_markdown() + REFUSED_SECTION + refused.render_markdown()


def with_options(page: str) -> str:
    """`page` with the table between its two markers.

    Raises:
        ValueError: a marker is missing.
    """
    before, _, rest = page.partition(BEGIN)
    _, found, after = rest.partition(END)
    if not found:
        raise ValueError(f"the page needs the lines {BEGIN.strip()!r} and {END.strip()!r}")
    return f"{before}{BEGIN}\n{render_markdown()}\n{END}{after}"


def main() -> None:
    """Write them all."""
    for name in profiles.PROFILES:
        (ROOT / "conf" / f"{name}.properties").write_text(profiles.render_properties(name), encoding="utf-8")
    (ROOT / "docs" / "options.md").write_text(options_page(), encoding="utf-8")
    readme = ROOT / "README.md"
    readme.write_text(with_options(readme.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
