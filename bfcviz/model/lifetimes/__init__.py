"""Each allocation from its ALLOCATE event to its FREE event, and where it lies among all addresses."""
