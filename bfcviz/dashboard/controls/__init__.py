"""Buttons, sliders and menus of a dashboard, the steps they lead to, and the text above the figure."""
