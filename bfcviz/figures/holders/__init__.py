"""The icicle of holders: who holds the memory in use at a step."""
