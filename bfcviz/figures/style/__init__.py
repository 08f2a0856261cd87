"""What all figures share: theme, colours, texts, and small drawing helpers."""
