"""Assigns nodes to a tree of asks: to all of them or to none.

The caller's placer filters and orders the nodes; nothing is allocated here.
"""
