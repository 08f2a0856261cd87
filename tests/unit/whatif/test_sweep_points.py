import pickle
from dataclasses import replace
from threading import Barrier, Thread

import pytest
from shared import sample_trace
from unit.whatif.sweep_streams import random_stream

from bfcviz.errors import FileError, InvalidRequest
from bfcviz.whatif.policy_table import policy_of
from bfcviz.whatif.requests import requests_of
from bfcviz.whatif.sweep_points import SentStream, StreamCache, SweepLimit


@pytest.mark.parametrize(
    ("given", "text", "num_bytes"),
    [
        (None, "none", None),
        (4096, "4096", 4096),
        ("4KiB", "4096", 4096),
        ("150%", "150%", 1500),
        (" 99.5 %", "99.5%", 995),
        (-1, "-1", -1),
    ],
)
def test_limits(given, text, num_bytes):
    limit = SweepLimit.of(given)
    assert (limit.text, limit.bytes_for(1000)) == (text, num_bytes)


@pytest.mark.parametrize("given", ["much", "%", "x%", "", "nan%", "inf%", 1.5])
def test_what_is_no_limit(given):
    with pytest.raises(InvalidRequest):
        SweepLimit.of(given)


def test_a_sent_stream_arrives_whole():
    stream = random_stream(1)
    found = pickle.loads(pickle.dumps(SentStream.of(stream))).stream()  # noqa: S301  our own
    assert (found.rows == stream.rows).all()
    assert found.source == stream.source


def test_a_sent_stream_has_the_regions_and_labels_that_policies_read():
    stream = requests_of(sample_trace("lstm"))
    found = pickle.loads(pickle.dumps(SentStream.of(stream))).stream()  # noqa: S301  our own
    assert found.digest == stream.digest
    assert replace(stream, regions=stream.regions[:0]).digest != stream.digest
    policy = policy_of("bfc:allow_growth=true,regions=exact")
    assert (policy.serve(found, stream.limit).address == policy.serve(stream, stream.limit).address).all()


def test_each_key_is_read_once_also_by_several_threads():
    cache, reads, found, together = StreamCache(), [], [], Barrier(4)
    stream = random_stream(1)

    def read():
        reads.append(1)
        return stream

    def get():
        together.wait()
        found.append(cache.get("a", read))

    threads = [Thread(target=get) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert reads == [1]
    assert all(each.stream is stream for each in found)
    assert found[0].peak_requested == stream.live_bytes.max()


def test_an_error_is_kept():
    reads = []

    def read():
        reads.append(1)
        raise FileError("a", "", "damaged")

    cache = StreamCache()
    for _ in range(2):
        with pytest.raises(FileError, match="damaged"):
            cache.get("a", read)
    assert reads == [1]


def test_streams_over_the_limit_are_dropped_the_one_used_last_stays():
    one = random_stream(1)
    cache, reads = StreamCache(most_bytes=2 * one.rows.nbytes), []

    def read(name):
        return lambda: reads.append(name) or random_stream(1)

    for name in ("a", "b", "a", "c", "a", "b"):
        cache.get(name, read(name))
    assert reads == ["a", "b", "c", "b"]
    assert len(cache) == 2
    small = StreamCache(most_bytes=0)
    assert small.get("a", read("a")).stream.allocations == one.allocations
    assert len(small) == 1


def test_the_keys_of_one_sweep_are_forgotten():
    cache = StreamCache()
    for key in ("one/0", "one/1", "two/0"):
        cache.get(key, lambda: random_stream(1))
    cache.forget("one/")
    assert len(cache) == 1
