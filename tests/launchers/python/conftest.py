"""What every test stands on: the report."""

pytest_plugins = ["report"]
