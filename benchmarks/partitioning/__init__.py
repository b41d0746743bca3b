"""The comparison of the partitioners: by simulation, which takes seconds, and beside Java's producer on a real cluster.

Owns: the real runs, the command line. Must not know: how a rule decides, or is simulated (`benchmarks.partitioning.simulation`).
"""
