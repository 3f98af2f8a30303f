"""The services of Muster. Each is a package that runs alone; none imports another."""
