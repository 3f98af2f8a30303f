"""What comes first: nodes, and those who wait.

No rule of a quota is here.
"""
