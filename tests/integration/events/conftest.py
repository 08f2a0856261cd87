from unit.events.conftest import folder  # noqa: F401  a fixture of both
