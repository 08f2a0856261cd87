from unit.events.conftest import folder, whole_recording  # noqa: F401  fixtures of both
