"""`muster`: the client of the API, the scenario runner, and the launcher of everything at once."""
