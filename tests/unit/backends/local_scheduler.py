"""A scheduler in the tests' own process."""

import itertools

import numpy as np
import torch

from crucible_worker.backends.local.host.engine import Scheduler
from crucible_worker.backends.local.host.loading import load
from crucible_worker.backends.local.protocol import tokens_to_bytes


class Run:
    """A scheduler in this process, and what it has answered."""

    def __init__(self, loaded):
        self.answers = {}
        self.scheduler = Scheduler(loaded, self.answers.__setitem__)
        self._identities = itertools.count()

    @classmethod
    def of_files(cls, directory, device="cpu", dtype=None):
        return cls(load(directory, torch.device(device), dtype=dtype))

    def encode(self, text):
        assert self.scheduler.loaded.tokenizer is not None
        return self.scheduler.loaded.tokenizer.encode(text)

    def sample(self, prompt, **overrides):
        identity = next(self._identities)
        message = {"prompt": tokens_to_bytes(np.array(prompt)), "max_tokens": 8, "temperature": 0.0, "top_p": 1.0,
                   "top_k": None, "seed": None, "stop": [], "num_samples": 1, "top": 0, **overrides}  # fmt: skip
        self.scheduler.add_sampling(identity, message)
        return identity

    def score(self, *items, together=False):
        """Tokens and targets of each."""
        identity = next(self._identities)
        encoded = [[tokens_to_bytes(np.array(ids)) for ids in item] for item in items]
        self.scheduler.add_scoring(identity, {"items": encoded, "together": together})
        return identity

    def measure(self, prompt, continuations):
        identity = next(self._identities)
        packed = [tokens_to_bytes(np.array(tokens)) for tokens in continuations]
        message = {"prompt": tokens_to_bytes(np.array(prompt)), "continuations": packed}
        self.scheduler.add_continuations(identity, message)
        return identity

    def greedy(self, *items):
        identity = next(self._identities)
        self.scheduler.add_argmax(identity, {"items": [tokens_to_bytes(np.array(tokens)) for tokens in items]})
        return identity

    @torch.inference_mode()
    def steps(self, count):
        torch.set_num_threads(self.scheduler.loaded.threads)
        for _ in range(count):
            self.scheduler.step()

    def finish(self):
        while self.scheduler.busy:
            self.steps(1)
        return self.answers

    def tokens(self, identity):
        return [result["tokens"] for result in self.answers[identity]]
