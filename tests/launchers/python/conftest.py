"""Shared fixtures: the report."""

pytest_plugins = ["report"]
