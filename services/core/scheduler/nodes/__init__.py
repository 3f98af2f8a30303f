"""The table of nodes with its indexes: which nodes fit a pod, and in which order.

Queues, applications and quotas are unknown here.
"""
