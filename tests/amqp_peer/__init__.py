"""A broker of AMQP 0-9-1 in this process and in virtual time, that does what a script says.

It is what RabbitBus uses of RabbitMQ, and no more. ``link`` carries bytes, ``session`` is one
connection with its channels, ``broker`` has the exchanges and the queues, ``faults`` is the script,
``run`` a deployment on it with what is judged at its end.
"""
