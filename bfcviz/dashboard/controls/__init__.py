"""Buttons, sliders and menus of a dashboard, the steps they go to, and the text above the figure."""
