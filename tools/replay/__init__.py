"""`muster replay`: a trace of jobs through the real scheduler, in virtual time."""
