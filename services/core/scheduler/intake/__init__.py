"""Applies the resource manager's messages: nodes, applications, asks, allocations, foreign pods.

Each item is validated, applied to the model, and its direct consequences are carried out. No node,
victim or order is chosen here.
"""
