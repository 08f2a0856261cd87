"""The rules of allocators, each in a file of its own; `bfcviz.whatif.policy_table` lists them."""
