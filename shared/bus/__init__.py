"""The message bus: ordered inboxes, confirmed publishing, dead letters.

Only this package may import aio_pika, and it may not interpret the content of a message.
"""
