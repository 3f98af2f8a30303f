"""The API service: answers users, from a read model that the core keeps up to date."""
