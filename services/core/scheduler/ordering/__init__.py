"""The order of queues, and the waiting lists: which asks are tried when there is room.

Nothing is placed or refused here: the ledgers and the nodes judge what fits.
"""
