"""Which nodes take a pod, and which of them comes first: the table of nodes with its indexes.

No queue, application or quota is known here.
"""
