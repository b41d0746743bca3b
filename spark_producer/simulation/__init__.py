"""The partitioners in a simulated cluster, beside what real clusters did: to see what a rule does, with no Kafka at hand.

Owns: the scenes of KIP-480 and KIP-794, the simulator, the recorded runs, their tables and pictures (matplotlib, where a
picture is asked for). Must not know: how a rule decides; it calls the rules of `partitioner` themselves. The notebook about
partitioners and `python -m benchmarks.partitioning` stand on it; no producer does.
"""
