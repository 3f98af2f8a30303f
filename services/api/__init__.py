"""The API service: answers people, from a read model that the core keeps up to date."""
