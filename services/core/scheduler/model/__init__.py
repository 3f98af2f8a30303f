"""The rows: queues, applications, asks and users, with their sums; settings.

Nothing here decides or reports anything.
"""
