"""The actions of contract kai.md on a session: a picture of a cluster, which is to go (ADR 28).

``statement`` changes a session so that every change can be taken back; ``engine`` runs actions in
their order.
"""
