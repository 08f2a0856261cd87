"""Tensors in the memory of an allocator: types, shapes, buffers and views."""
