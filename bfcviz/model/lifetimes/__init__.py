"""Each allocation from its ALLOCATE event to its FREE event, and its place among all addresses."""
