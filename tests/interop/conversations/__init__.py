"""Conversations about transactions and groups: what is said to a broker, and what real brokers answered.

Owns: the scenes (`scenes_*`), how they are played and written down, and the answers of real Kafka (`answers/`).
Must not know: which broker answers.
"""
