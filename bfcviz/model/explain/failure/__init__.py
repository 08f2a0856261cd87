"""Why a request failed, as data: a verdict, the numbers behind it, what pins the free memory, and advice.

`diagnose` puts it together. `runs` finds neighbouring chunks that would make room, `pins` who holds them, `settings`
what the heap was told, `advice` what would have helped, in the words of `framework_words`. `report` makes JSON of it.
"""
