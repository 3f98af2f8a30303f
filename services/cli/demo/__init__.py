"""The demo's queues and applications, as manifests."""
