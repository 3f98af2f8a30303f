"""HTTP itself: bodies, answers, paths, connections, certificates; not the content of answers."""
