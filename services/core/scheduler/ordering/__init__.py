"""Whose turn it is: queues in order, and who of those that wait is considered when there is room.

Nothing is placed or refused here; what fits is the ledgers' and the nodes' to say.
"""
