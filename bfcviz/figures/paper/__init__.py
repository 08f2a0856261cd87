"""Figures for print: column widths, greys and patterns instead of colours, the definitions as a caption below."""
