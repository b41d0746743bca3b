"""The embedded broker's two storage engines, side by side: each scene is played to a broker in a process of its own.

Owns: the load, the scenes and their page. Must not know: what an engine does inside.
"""
