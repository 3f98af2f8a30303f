"""What the services have in common: the model, the messages, the bus and the runtime."""
