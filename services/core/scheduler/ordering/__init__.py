"""The order of queues, and the waiting lists: which asks are tried when capacity becomes free.

Nothing is placed or refused here: the ledgers and the nodes decide what fits.
"""
