"""What Muster's own ``/v1`` shows: applications, pods, queues, traces. No route."""
