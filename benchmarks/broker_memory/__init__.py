"""The experiments of the article on the embedded broker's memory: which tier serves whom, by the engine's own counters.

Owns: a storage engine with writers and readers at their rates (`stand`), the experiments and what they must count
(`experiments`), how many misses a reader far behind has (`prediction`), the page (`page`).
Must not know: requests and connections; they are the same before every engine.
"""
