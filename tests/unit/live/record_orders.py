"""Orders of `bfcviz record`, and what the process told of them."""

import json


def order(folder, **more):
    (folder / "told").mkdir()
    (folder / "run").mkdir()
    asked = {
        "folder": str(folder / "run"),
        "told": str(folder / "told"),
        "recorder": "bfcviz.live.recorded_process",
        "way": None,
        "options": {},
    }
    return {**asked, **more}


def facts(folder):
    return [
        json.loads(line)["fact"]
        for file in (folder / "told").iterdir()
        for line in file.read_text().splitlines()
    ]
