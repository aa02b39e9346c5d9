"""Measurements on arrays."""
