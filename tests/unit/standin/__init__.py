"""A stand-in for the engine and how it is started: the real launcher, supervisor, lease and client around no model."""
