"""The experiments of the article on the embedded broker's memory: which tier serves whom, by the engine's own counters.

Owns: a storage engine with writers and readers at their rates (`stand`), the experiments on the tiers and what they must count
(`experiments`), how many misses a reader with a large lag has (`prediction`); group commit (`group_commit`), the journal on a
disk of its own (`two_devices`, on simulated `devices`), back-pressure (`back_pressure`, with a `flood` of Produces to a
`slow_broker`); and the page (`page`, `section`). Must not know: requests and connections, except for those of the flood; they
are the same before every engine.
"""
