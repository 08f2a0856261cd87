"""figure_widget.js without a page: what a notebook that is saved with its widgets keeps of a figure."""

import json
import shutil
import subprocess

import pytest

from bfcviz.dashboard.figure_widget import OneWayFigureWidget

NODE = shutil.which("node")
PAGE = """
const changed = [];
const updates = { attributes: {}, on: (_, changes) => changed.push(changes), off() {} };
const state = {
  _shown: { number: 0, step: 3 },
  _widget_data: [{ x: { dtype: "float64", shape: [2], value: bytes(new Float64Array([1, 2])) }, y: [1, null] }],
  _widget_layout: { title: "before", height: 360 },
};
function bytes(array) { return new DataView(array.buffer); }
const get_model = async () => updates;
const set = (name, value) => (state[name] = value);
const model = { get: (name) => state[name], set, widget_manager: { get_model } };
globalThis.setTimeout = (call) => queueMicrotask(call);
make().initialize({ model });
await new Promise((done) => setImmediate(done));
updates.attributes["update 1"] = { number: 1, step: 4, parts: [{
  traces: [0],
  restyle: { x: [{ dtype: "int16", shape: [3], value: bytes(new Int16Array([7, 8, 9])) }], "marker.color": ["red"] },
  relayout: { "xaxis.range[0]": 5, title: null },
}] };
for (const each of changed) each();
await new Promise((done) => setImmediate(done));
const listed = (_, value) => (value instanceof DataView ? [...new Uint8Array(value.buffer)] : value);
console.log(JSON.stringify(state, listed));
"""


@pytest.mark.skipif(NODE is None, reason="needs Node.js")
def test_a_notebook_saved_with_its_widgets_keeps_the_newest_figure(tmp_path):
    module, page = tmp_path / "figure.mjs", tmp_path / "page.mjs"
    module.write_text(OneWayFigureWidget._esm)
    page.write_text(f'import make from "./{module.name}";{PAGE}')
    state = json.loads(subprocess.check_output([NODE, page], text=True, timeout=150))
    assert state["_shown"] == {"number": 1, "step": 4}
    assert state["_widget_layout"] == {"height": 360, "xaxis": {"range": [5]}}
    (trace,) = state["_widget_data"]
    assert trace["x"] == {"dtype": "int16", "shape": [3], "value": [7, 0, 8, 0, 9, 0]}
    assert (trace["y"], trace["marker"]) == ([1, None], {"color": "red"})
