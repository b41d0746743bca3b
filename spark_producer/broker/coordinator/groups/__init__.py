"""Consumer groups with members, by the classic group protocol.

Owns: the state machine of one group (`group`, with the rules of `join_rules` and `member_requests`), all groups and their limits
(`registry`), the format of consumers' subscriptions and assignments (`consumer_protocol`).
Must not know: requests and their versions, sockets, the clock (it is passed in), or committed offsets.
"""
