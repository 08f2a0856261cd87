"""The region map: each region is a row, each chunk a rectangle, coloured by its state or its label.

`rows` lays the regions out, `traces` draws the chunks: as rectangles, or as an image (`cells`) if there are too many;
`figure` assembles the map.
"""
