"""The scheduler: a pure machine from messages to decisions.

Nothing in here reads a clock, does I/O or uses randomness: time and identity come in with the
messages. It imports ``shared.model``, ``shared.messages`` and numpy, nothing else.
"""
