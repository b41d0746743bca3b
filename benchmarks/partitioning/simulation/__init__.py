"""The partitioners in a simulated cluster, beside what real clusters did: to see what a rule does, with no Kafka at hand.

Owns: the scenes of KIP-480 and KIP-794, the simulator, the recorded runs, and their tables and pictures (only the pictures need
matplotlib). Must not know: how a rule decides; it calls the rules of `partitioner` themselves. The notebook about partitioners
and `python -m benchmarks.partitioning` use it; no producer does.
"""
