import json
from dataclasses import replace

import pytest

from bfcviz.errors import FileError
from bfcviz.whatif.policy_table import policy_of
from bfcviz.whatif.search import trial
from bfcviz.whatif.search.trial import SHARED, TrialCache, TrialKey, trial_cache, trial_options

KEY = TrialKey("digest", "bfc", "{}", 5)


def test_results_are_kept_by_all_parts_of_the_key():
    cache = TrialCache()
    cache.put(KEY, {"fits": True})
    assert cache.get(KEY) == {"fits": True}
    for change in ({"stream": "b"}, {"policy": "b"}, {"options": "b"}, {"limit": None}):
        assert cache.get(KEY._replace(**change)) is None


def test_files_are_read_by_another_cache_unless_they_are_damaged_or_old(tmp_path, monkeypatch):
    TrialCache(tmp_path / "new" / "folder").put(KEY, {"fits": True})
    folder = tmp_path / "new" / "folder"
    assert TrialCache(folder).get(KEY) == {"fits": True}
    monkeypatch.setattr(trial, "version", lambda _: "another")
    assert TrialCache(folder).get(KEY) is None
    monkeypatch.undo()
    (file,) = folder.iterdir()
    for text in (
        "",
        "[]",
        '{"key": [], "result": {"fits": true}}',
        '{"key": ',
        '{"result": 5}',
        "[" * 10_000,
    ):
        file.write_text(text)
        assert TrialCache(folder).get(KEY) is None
    found = TrialCache(folder)
    found.put(KEY, {"fits": False})
    assert json.loads(file.read_text())["result"] == {"fits": False}


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="file"):
        TrialCache(tmp_path / "file")


def test_the_oldest_result_is_dropped(monkeypatch):
    monkeypatch.setattr(trial, "MOST_KEPT", 3)
    cache = TrialCache()
    for limit in range(5):
        cache.put(KEY._replace(limit=limit), {})
    assert [cache.get(KEY._replace(limit=limit)) for limit in range(5)] == [None, None, {}, {}, {}]


def test_defaults_are_part_of_the_options():
    assert trial_options(policy_of("bfc")) == trial_options(policy_of("bfc:allow_growth=false"))
    assert trial_options(policy_of("bfc")) != trial_options(policy_of("bfc:allow_growth=true"))


def test_a_policy_that_is_not_of_the_table_has_no_key():
    own = policy_of("first_fit")
    assert trial_options(own) is not None
    assert trial_options(replace(own, make=lambda driver: None)) is None
    assert trial_options(replace(own, name="mine")) is None
    assert trial_options(replace(own, options={"colour": 1})) is None


def test_a_cache_is_shared_or_made(tmp_path):
    cache = TrialCache()
    assert trial_cache(cache) is cache
    assert trial_cache(None) is SHARED
    trial_cache(tmp_path).put(KEY, {})
    assert len(list(tmp_path.iterdir())) == 1
