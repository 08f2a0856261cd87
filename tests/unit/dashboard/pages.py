"""Parse the tables of a page, record and send messages of widgets, and check that a page can show an Inspector."""

import json
import re
from html import unescape
from html.parser import HTMLParser

import comm
import ipywidgets as widgets
from ipywidgets import Widget
from unit.figures.odd_traces import assert_drawable, assert_harmless

VOID = {"br", "col", "img"}


class Page(HTMLParser):
    """A table's page parsed; fails on markup that does not close."""

    def __init__(self, html):
        super().__init__()
        self.open, self.rows, self.heads, self.tags = [], [], [], set()
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.tags.add(tag)
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr" and "data-bfcviz" in attributes:
            self.rows.append(
                {"does": json.loads(attributes["data-bfcviz"]), "cells": [], "jumps": [], **attributes}
            )
        if tag == "th":
            self.heads.append({"text": "", "sort": attributes.get("aria-sort")})
        if tag == "td" and self.rows and "colspan" not in attributes:
            self.rows[-1]["cells"].append("")
        if tag == "button" and "td" in self.open:
            self.rows[-1]["jumps"].append(json.loads(attributes["data-bfcviz"]))
        if tag == "button" and "th" in self.open:
            self.heads[-1]["does"] = json.loads(attributes["data-bfcviz"])

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "th" in self.open:
            self.heads[-1]["text"] += data
        elif "td" in self.open and self.rows and self.rows[-1]["cells"]:
            self.rows[-1]["cells"][-1] += data


def page(listed):
    return Page(listed.page.value)


def sizes(listed):
    """What the page is told of the rows: their place and number."""
    found = re.search("data-bfcviz-rows='([^']*)'", listed.page.value)
    return json.loads(found[1])


def column(listed, name):
    taken_apart = page(listed)
    at = [head["text"].rstrip("▲▼") for head in taken_apart.heads].index(name)
    return [row["cells"][at] for row in taken_apart.rows]


def count(listed):
    return unescape(re.sub("<[^>]*>|[\u2068\u2069]", "", listed.count.value))


def messages(monkeypatch, do):
    """The messages that widgets send during `do`: (widget, names of its traits)."""
    sent = []
    with monkeypatch.context() as patch:
        patch.setattr(Widget, "send_state", lambda widget, key=None: key and sent.append((widget, key)))
        do()
    return sent


def tell_views(widget, count):
    """As the page does when a view of it appears or disappears."""
    data = {"method": "update", "state": {"_view_count": count}, "buffer_paths": []}
    comm.get_comm_manager().comms[widget.model_id].handle_msg({"content": {"data": data}, "buffers": []})


def inputs(widget):
    """Everything inside a widget that takes input."""
    if hasattr(widget, "children"):
        return [each for child in widget.children for each in inputs(child)]
    return [widget] if hasattr(widget, "disabled") else []


OURS = frozenset(
    (
        "a",
        "b",
        "bdi",
        "br",
        "button",
        "code",
        "col",
        "colgroup",
        "dd",
        "details",
        "div",
        "dl",
        "dt",
        "em",
        "i",
        "mark",
        "p",
        "span",
        "style",
        "summary",
        "table",
        "tbody",
        "td",
        "textarea",
        "th",
        "thead",
        "tr",
        "u",
    )
)
"""Tags of the dashboard's own HTML."""


def everything_in(widget):
    yield widget
    for child in getattr(widget, "children", ()):
        yield from everything_in(child)


def assert_fit_for_a_page(inspector):
    for widget in everything_in(inspector):
        if isinstance(widget, widgets.HTML):
            assert_harmless(widget.value, OURS)
    shown = inspector.view.widget
    for part in (*shown.data, shown.layout):
        assert_drawable(part._props or {})  # to_plotly_json() copies it, and to_dict() encodes all arrays
