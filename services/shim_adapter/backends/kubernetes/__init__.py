"""A Kubernetes cluster as the resource manager.

``reflector.py`` lists and watches; ``objects.py`` makes records of what it sees; ``cluster.py``
keeps the world and says what is new; ``operations.py`` carries out what was decided, with the
bodies of ``bodies.py``, through ``client.py``; ``session.py`` runs all of it beside the host.
``volumes.py`` knows where volumes let a pod be, ``notes.py`` writes at pods what their users should
know, ``recover.py`` makes applications of pods after a restart.
"""
