"""The region map: each region is a row, each chunk a rectangle, coloured by its state or its label.

`figure` assembles it. `raster` paints it as an image if there are too many chunks for rectangles.
"""
