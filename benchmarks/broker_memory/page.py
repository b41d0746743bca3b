"""The experiments as a Markdown page, with the picture of the tiers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.broker_memory.experiments import MB, Outcome, Scene, Sizes
from benchmarks.machine import kernel_facts
from spark_producer.broker.memory.sizes import MIB

MADE_BY: Final = "Made by `make experiments`; do not edit."
_COLUMNS: Final = (
    "| | partitions | in / out MB/s | tail cache hit / miss | write cache | read cache hit / miss (hits) | predicted misses "
    "| from entry logs | read ahead | the article |"
)
_TIERS: Final = ("tail cache", "write cache", "read cache", "entry log")
_COLORS: Final = ("#4c9f70", "#e0b040", "#4878a8", "#b05050")

Ran = tuple[Scene, Outcome]


def table(ran: Sequence[Ran]) -> str:
    """Return the rows that were run, with what the article says beside ours."""
    rule = "|---|--:|--:|--:|--:|--:|--:|--:|--:|---|"
    return "\n".join([_COLUMNS, rule, *(_row(scene, found) for scene, found in ran)])


def _row(scene: Scene, found: Outcome) -> str:
    rate = f" ({found.hit_rate:.2%})" if found.hit_rate is not None else ""
    rates = [f"{size / found.seconds / MB:.1f}" for size in (found.written_bytes, found.read_bytes)]
    cells = [
        scene.title,
        f"{found.partitions}",
        " / ".join(rates),
        f"{found.tail_hit:,} / {found.tail_miss:,}",
        f"{found.write_cache:,}",
        f"{found.read_cache_hit:,} / {found.read_cache_miss:,}{rate}",
        "" if found.expected_misses is None else f"{found.expected_misses:,}",
        f"{found.entry_log:,}",
        f"{found.read_ahead:,}",
        scene.seed,
    ]
    return f"| {' | '.join(cells)} |"


def page(ran: Sequence[Ran], sizes: Sizes, picture: str, parts: Sequence[Sequence[str]]) -> str:
    """Return the whole page; `parts` are the lines of the experiments on which the tiers are based."""
    lines = [
        "# The experiments on the embedded broker's memory",
        "",
        "Which tier of the [embedded broker](embedded_broker.md) serves which readers, beside the figures of [the article]"
        "(broker_storage.md). E1 and E2 are the article's own experiments.",
        "",
        "## E1, E2, E3, E6: which tier serves whom",
        "",
        f"![Where readers got their entries from]({picture})",
        "",
        table(ran),
        "",
        "- **E1**: readers at the end read the tail cache alone.",
        "- **E2**: readers after a pause read the read cache, which read-ahead fills. Predicted misses: Σ⌈R ÷ (B + 1)⌉ over the "
        "runs of R adjacent entries in the entry logs, with B read ahead.",
        f"- **E3**: readers with a lag of {sizes.lag:,} entries are too late for the tail cache; the write cache serves them.",
        "- **E6**: readers at the end and readers far from it use the same tiers together as each does alone.",
        "",
        *_set_up(sizes),
        "",
        *(line for part in parts for line in [*part, ""]),
        "## How it is made",
        "",
        f"{MADE_BY} The tests run the experiments small, and assert counts and no times.",
        "",
        *kernel_facts(),
    ]
    return "\n".join(lines) + "\n"


def _set_up(sizes: Sizes) -> list[str]:
    options = sizes.options
    caches = (options.write_cache_bytes, options.read_cache_bytes, options.tail_cache_bytes)
    write, read, tail = (f"{each / MIB:.1f} MiB" for each in caches)
    return [
        f"The engine `tiered` with a write cache of {write} in two halves, a read cache of {read} and a tail cache of {tail}. "
        f"Entries are batches of {sizes.entry_bytes:,} bytes ({sizes.records} messages); the journal is "
        f"{'forced' if sizes.sync else 'not forced'}; readers belong to a group. Each row runs {sizes.seconds:g} s; a backlog "
        f"takes {sizes.pause_s:g} s (the article: 10 minutes, 256 MiB of direct memory each). Rates are settings.",
    ]


def draw(ran: Sequence[Ran], path: Path) -> None:
    """Draw a bar for each row: the part of its entries that each tier served."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "pyproducer"
    from matplotlib import pyplot as plt

    names = [f"{scene.title}, {found.partitions} partition{'s' * (found.partitions > 1)}" for scene, found in ran]
    figure, axes = plt.subplots(figsize=(9, 0.6 + 0.42 * len(ran)), layout="constrained")
    begins = [0.0] * len(ran)
    for tier, color in enumerate(_COLORS):
        parts = [100 * shares(found)[tier] for _, found in ran]
        axes.barh(names, parts, left=begins, color=color, label=_TIERS[tier])
        begins = [begin + part for begin, part in zip(begins, parts, strict=True)]
    axes.invert_yaxis()
    axes.set_xlabel("% of the entries that were read")
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def shares(found: Outcome) -> tuple[float, float, float, float]:
    """Return the part of the entries that tail cache, write cache, read cache and entry logs served."""
    of = max(found.read, 1)
    return found.tail_hit / of, found.write_cache / of, found.read_cache_hit / of, found.entry_log / of
