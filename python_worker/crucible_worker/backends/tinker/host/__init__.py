"""The process that has the tokenizers of Tinker models, each in a child that is killed when it exceeds a limit."""
