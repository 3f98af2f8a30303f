"""The tree of queues as it is configured, and where an application is placed in it.

No sums of what runs are here.
"""
