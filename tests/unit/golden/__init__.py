"""A stand-in server with a known schedule, for the client's own tests and its benchmark; it judges no
engine."""
