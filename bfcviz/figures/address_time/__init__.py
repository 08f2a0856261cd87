"""The address-time map: addresses upwards, steps to the right, each allocation a rectangle."""
