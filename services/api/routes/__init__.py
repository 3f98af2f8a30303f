"""The routes: from a request to its answer. Other packages determine the content of answers."""
