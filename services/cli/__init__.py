"""`muster`: the client of the API, and the launcher of everything at once."""
