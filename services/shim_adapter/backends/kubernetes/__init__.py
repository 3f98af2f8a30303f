"""A Kubernetes cluster as the resource manager.

``reflector.py`` lists and watches; ``objects.py`` converts objects to records; ``cluster.py``
updates the world and reports changes; ``operations.py`` carries out decisions through
``client.py``, with the bodies of ``bodies.py``; ``session.py`` runs all of it beside the host.
``volumes.py`` restricts pods to where their volumes are, ``notes.py`` writes events and conditions
for users, ``recover.py`` rebuilds applications from pods after a restart.
"""
