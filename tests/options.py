"""What ``make test`` may be asked for besides: said here, where it costs nothing to import."""

OPTION = "--real-api-server"
