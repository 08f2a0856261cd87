"""The region map: each region is a row, each chunk a rectangle, coloured by its state or its label.

`figure` puts it together. `raster` paints it as an image where there are too many chunks for rectangles.
"""
