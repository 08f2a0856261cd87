"""The address-time map: addresses on the y axis, steps or time on the x axis, each allocation a rectangle."""
