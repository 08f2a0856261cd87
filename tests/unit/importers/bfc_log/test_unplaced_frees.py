from bfcviz.importers.bfc_log.vlog import Act, PlacedVlogFrees, VlogOperation, place_frees


def placed(*operations: tuple[str, int, int]) -> tuple[PlacedVlogFrees, list[int]]:
    """Addresses of the frees; an operation is `a` or `f`, its address and its size."""
    acts = {"a": Act.ALLOCATE, "f": Act.FREE}
    made = [VlogOperation(acts[act], order, at, size) for order, (act, at, size) in enumerate(operations)]
    result = place_frees(made)
    return result, [each.address for each in made if each.act is Act.FREE]


def test_a_size_that_is_in_use_once_is_certain() -> None:
    assert placed(("a", 256, 10), ("a", 512, 20), ("f", 0, 20)) == ((0, 0), [512])


def test_memory_that_is_allocated_again_was_freed_before() -> None:
    history = (("a", 256, 10), ("a", 512, 10), ("f", 0, 10), ("a", 512, 30))
    assert placed(*history) == ((0, 0), [512])


def test_an_allocation_over_the_middle_of_chunks_frees_them_too() -> None:
    history = (
        ("a", 256, 300),
        ("a", 768, 300),
        ("a", 8192, 300),
        ("f", 0, 300),
        ("f", 0, 300),
        ("a", 512, 1000),
    )
    assert placed(*history) == ((1, 0), [256, 768])


def test_what_remains_open_is_the_oldest_and_counted() -> None:
    assert placed(("a", 256, 10), ("a", 512, 10), ("f", 0, 10)) == ((1, 0), [256])


def test_if_all_of_a_size_were_freed_the_last_one_is_certain() -> None:
    assert placed(("a", 256, 10), ("a", 512, 10), ("f", 0, 10), ("f", 0, 10)) == ((1, 0), [256, 512])


def test_a_free_of_a_size_that_is_not_in_use_is_unknown() -> None:
    assert placed(("f", 0, 10), ("a", 256, 10)) == ((0, 1), [0])


def test_known_addresses_stay() -> None:
    assert placed(("a", 256, 10), ("a", 512, 10), ("f", 512, 10), ("f", 0, 10)) == ((0, 0), [512, 256])
