"""A plain heap after many requests of many sizes."""

from naive_heap import NaiveHeap


def busy_heap(count=300):
    heap = NaiveHeap()
    heap.extend(0, 1 << 30, 1 << 20, 0)
    held = []
    for number in range(count):
        held.append(heap.allocate(0, 100 * (number % 37) + 1, label=number % 5))
        if number % 3:
            heap.free(0, held.pop(number % len(held)))
    return heap
