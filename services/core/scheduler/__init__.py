"""The scheduler: a pure state machine from messages to decisions.

Nothing in here reads a clock, does I/O or uses randomness: time and identity arrive with the
messages. It imports only ``shared.model``, ``shared.messages`` and numpy.
"""
