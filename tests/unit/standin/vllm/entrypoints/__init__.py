"""A stand-in for the engine, for the tests of the launcher: same module names, no model, ready after a fixed time."""
