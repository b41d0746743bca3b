"""Consumer groups with members, by the classic group protocol: who belongs to a group, in which generation, and until when.

Owns: the state machine of one group (`group`, with the rules of `joining` and `belonging`), all groups and their limits
(`registry`), what consumers write into the bytes that groups carry (`consumer_protocol`).
Must not know: requests and their versions, sockets, the clock (it is passed in), or the offsets that are committed.
"""
