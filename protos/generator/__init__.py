"""What is generated from the protos: one module for each output, joined by `frame`."""
