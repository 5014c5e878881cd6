"""From conversations and text to tokens and weights."""
