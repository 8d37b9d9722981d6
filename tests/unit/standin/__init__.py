"""A stand-in for the engine and how it is started: the real launcher, warden, lease and client around no model."""
