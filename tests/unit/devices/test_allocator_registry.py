"""AllocatorRegistry: the factory of highest priority makes the allocator; conflicts are errors."""

import pytest
from heaps import new_heap

from bfcviz.allocator.sub_allocators import SimulatedSubAllocator
from bfcviz.devices.session_memory import NO_AFFINITY, AllocatorFactory, AllocatorRegistry
from bfcviz.errors import AllocatorError, InvalidRequest


class Factory:
    """Counts the objects it creates."""

    def __init__(self, *, numa=False):
        self.made = []
        self.nodes = []
        self.factory = AllocatorFactory(self.make, self.make_sub, numa_enabled=numa)

    def make(self):
        self.made.append(new_heap())
        return self.made[-1]

    def make_sub(self, node):
        self.nodes.append(node)
        return SimulatedSubAllocator()


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_the_highest_priority_wins_in_whatever_order_they_came(order):
    registry, factories = AllocatorRegistry(), [Factory() for _ in range(3)]
    for number in order:
        registry.register(f"factory {number}", 10 * number, factories[number].factory)
    assert registry.names == ["factory 2", "factory 1", "factory 0"]
    assert registry.allocator() is factories[2].made[0]
    assert registry.allocator() is registry.allocator()
    assert [len(factory.made) for factory in factories] == [0, 0, 1]


def test_conflicts_are_errors():
    registry = AllocatorRegistry()
    registry.register("one", 10, Factory().factory)
    for name in ("one", "other"):
        with pytest.raises(AllocatorError, match="priority 10: 'one'"):
            registry.register(name, 10, Factory().factory)
    registry.register("one", 20, Factory().factory)
    assert registry.names == ["one", "one"]


@pytest.mark.parametrize("use", [AllocatorRegistry.allocator, AllocatorRegistry.sub_allocator])
def test_after_the_first_use_it_is_too_late(use):
    registry = AllocatorRegistry()
    with pytest.raises(AllocatorError, match="no factory"):
        use(registry)
    registry.register("one", 10, Factory().factory)
    use(registry)
    with pytest.raises(AllocatorError, match="before the first"):
        registry.register("late", 99, Factory().factory)
    assert registry.names == ["one"]


def test_a_factory_that_knows_numa_nodes_goes_first_for_sub_allocators():
    registry, plain, numa = AllocatorRegistry(), Factory(), Factory(numa=True)
    registry.register("plain", 90, plain.factory)
    registry.register("numa", 10, numa.factory)
    assert registry.sub_allocator(1) is registry.sub_allocator(1)
    assert registry.sub_allocator(0) is not registry.sub_allocator(1)
    registry.sub_allocator()
    assert numa.nodes == [1, 0, NO_AFFINITY]
    assert plain.nodes == []
    assert registry.allocator() is plain.made[0]


def test_without_one_there_is_one_sub_allocator_for_all_nodes():
    registry, factory = AllocatorRegistry(), Factory()
    registry.register("plain", 1, factory.factory)
    assert registry.sub_allocator(3) is registry.sub_allocator(0) is registry.sub_allocator()
    assert factory.nodes == [NO_AFFINITY]
    with pytest.raises(InvalidRequest, match="NUMA node is -2"):
        registry.sub_allocator(-2)


def test_a_factory_may_use_the_registry():
    registry = AllocatorRegistry()
    asked = []

    def make():
        asked.append(registry.sub_allocator())
        return new_heap()

    registry.register("one", 1, AllocatorFactory(make, lambda _: SimulatedSubAllocator()))
    registry.allocator()
    assert asked == [registry.sub_allocator()]


def test_a_factory_that_fails_is_asked_again():
    registry = AllocatorRegistry()
    answers = [MemoryError(), new_heap()]

    def make():
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    registry.register("one", 1, AllocatorFactory(make, lambda _: SimulatedSubAllocator()))
    with pytest.raises(MemoryError):
        registry.allocator()
    assert registry.allocator() is registry.allocator()
