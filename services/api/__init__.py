"""The API service: answers users from a read model that follows the core's state events."""
