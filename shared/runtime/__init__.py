"""The imperative shell: what hosts a pure machine on a bus. Written once, used by every service."""
