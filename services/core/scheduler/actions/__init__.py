"""The actions framework: sessions, statements, and the actions that use them. Pure.

``session`` is a picture of a cluster that actions work on; ``statement`` changes it so that every
change can be taken back; ``engine`` runs actions in their order.
"""
