"""The routes: from a request to its answer. What the answers have stands in the other rooms."""
