"""HTTP itself: bodies, answers, paths, connections, certificates. Nothing of what is answered."""
