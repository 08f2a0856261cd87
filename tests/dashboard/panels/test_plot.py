"""plotly's widget without its answers: as long as its script is written as it is now."""

from bfcviz.dashboard.panels.plot import Plot


def test_both_answers_are_cut_out_of_the_script():
    for name in ("_sendTraceDeltas(", "_sendLayoutDelta("):
        definitions = [part for part in Plot._esm.split(name)[1:] if "{return;" in part[:12]]
        assert len(definitions) == 1
