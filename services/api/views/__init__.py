"""The content of Muster's own ``/v1`` answers: applications, pods, queues, traces."""
