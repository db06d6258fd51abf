"""Buffers: what grows with steps or epochs, and what a graph keeps alive."""
