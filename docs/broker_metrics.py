"""Makes docs/broker_metrics.md from the counters of the embedded broker; `docs/update.py` calls it."""

from __future__ import annotations

from spark_producer.broker.counters import MetricReading
from spark_producer.broker.memory.object_memory import HeapCounts
from spark_producer.broker.memory.plan import DEFAULT_PLAN
from spark_producer.broker.metrics.snapshot import heap_readings, plan_readings
from spark_producer.broker.storage.tiered.counters import TierCounters

PAGE = """# Metrics of the embedded broker

This page is made by `make docs` from the broker's counters. `pyproducer broker --metrics-port 9094` shows them at
`http://127.0.0.1:9094/metrics` in Prometheus' text format; `LocalBroker(metrics_port=0)` takes a free port
(`broker.metrics_port`). Names in `_total` are counters, the others gauges. The last column is the metric of Pulsar or BookKeeper
that counts the same, perhaps as a rate or a histogram.

**The default engine, `segments`, shows only the metrics with `heap` in their names, and
`pyproducer_broker_memory_limit_bytes` only for the publish buffer.** The page also has `pyproducer_broker_info`, the publish
buffer (`pyproducer_broker_publish_…`), `process_resident_memory_bytes`, `pyproducer_broker_page_cache_bytes` and
`pyproducer_broker_machine_memory_bytes`.

With `tiered`, each batch that a reader gets came from one tier: `read_fetched_total` = `tail_hit_total` +
`write_cache_hit_active_total` + `write_cache_hit_flushing_total` + `read_cache_hit_total` + `entrylog_read_total`.

| metric | what | Pulsar or BookKeeper |
|---|---|---|
"""


def broker_metrics_page() -> str:
    """The whole page."""
    tiers = list(TierCounters().readings())
    plan = plan_readings(DEFAULT_PLAN, {each.name for each in tiers})
    shown = [*heap_readings(HeapCounts()), *plan, *tiers]
    return PAGE + "".join(f"{row}\n" for row in dict.fromkeys(map(_row, shown)))


def _row(reading: MetricReading) -> str:
    text, _, counterpart = reading.meaning
    return f"| `{reading.name}` | {text} | {f'`{counterpart}`' if counterpart else ''} |"
