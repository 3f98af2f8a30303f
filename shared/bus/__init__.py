"""The bus: ordered inboxes, confirmed publishing, dead letters. The only room with a broker in it.

Nothing outside may import aio_pika; nothing inside may know what a message means.
"""
