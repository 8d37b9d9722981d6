"""Measurements of the suite's own instruments; nothing here is asserted by a test."""
