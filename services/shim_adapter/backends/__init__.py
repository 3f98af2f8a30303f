"""Resource managers: what carries out the mirror's calls and reports what happens."""
