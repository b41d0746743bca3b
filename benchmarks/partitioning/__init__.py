"""The partitioners compared: by a discrete-event simulation in seconds, and beside Java's producer on a real cluster.

Owns: the scenes of KIP-480 and KIP-794, the simulator, the real run. Must not know: how a rule decides; the simulator
calls the rules of `spark_producer.partitioner` themselves.
"""
