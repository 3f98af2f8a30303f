"""What there is: nodes, queues, applications, asks and users, with the sums over them.

Nothing here decides or reports anything.
"""
