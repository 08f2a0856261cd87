"""Parse the HTML of the side pane."""

import json
from html.parser import HTMLParser

VOID = {"br", "col"}


class Side(HTMLParser):
    """Elements with their attributes and the text in them; fails on markup that does not close.

    `does` and `hover` of an element are its messages.
    """

    def __init__(self, html):
        super().__init__()
        self.open, self.found = [], []
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        element = {"tag": tag, "text": "", "within": [each["tag"] for each in self.open], **attributes}
        for name, attribute in (("does", "data-bfcviz"), ("hover", "data-bfcviz-hover")):
            if attribute in attributes:
                element[name] = json.loads(attributes[attribute])
        self.found.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_endtag(self, tag):
        assert self.open.pop()["tag"] == tag

    def handle_data(self, data):
        for element in self.open:
            element["text"] += data

    def all(self, tag, within=""):
        return [
            each for each in self.found if each["tag"] == tag and (not within or within in each["within"])
        ]


def cells(html):
    """The cells of each row of the list, as text."""
    rows, found = Side(html), []
    for element in rows.found:
        if element["tag"] == "tr" and "tbody" in element["within"]:
            found.append([])
        if element["tag"] == "td":
            found[-1].append(element["text"].strip("\u2068\u2069"))
    return found
