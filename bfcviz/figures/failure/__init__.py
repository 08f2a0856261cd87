"""The picture of a failed request: what was asked and what is free, and the best runs with the chunks that pin them."""
