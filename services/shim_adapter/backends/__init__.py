"""Resource managers: they carry out the mirror's calls and report events."""
