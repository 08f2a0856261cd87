"""One heap at one moment as a small piece of HTML for a notebook: verdict, sizes, map, holders, what to do.

Input: a model, and the diagnosis of a failed request if there is one. Output: HTML without a script, in light and dark.
"""
