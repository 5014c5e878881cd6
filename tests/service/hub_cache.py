"""A cache as the library leaves it behind after it has fetched a data set from the hub."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import datasets

__all__ = ["COMMIT", "fill"]

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class _Made(datasets.GeneratorBasedBuilder):
    splits: Mapping[str, Sequence[Mapping[str, Any]]]
    features: datasets.Features | None

    def _info(self) -> datasets.DatasetInfo:
        return datasets.DatasetInfo(features=self.features)

    def _split_generators(self, dl_manager: Any) -> list[datasets.SplitGenerator]:
        return [datasets.SplitGenerator(name=name, gen_kwargs={"rows": rows}) for name, rows in self.splits.items()]

    def _generate_examples(self, **kwargs: Any) -> Any:
        yield from enumerate(kwargs["rows"])


def fill(
    cache: Path,
    repo_id: str,
    splits: Mapping[str, Sequence[Mapping[str, Any]]],
    *,
    features: datasets.Features | None = None,
    config: str = "default",
    commit: str = COMMIT,
) -> None:
    """Put a data set into a cache."""
    made = type("Made", (_Made,), {"splits": splits, "features": features, "BUILDER_CONFIGS": []})
    builder = made(
        cache_dir=str(cache),
        repo_id=repo_id,
        dataset_name=repo_id.split("/")[1],
        config_name=config,
        version="0.0.0",
        hash=commit,
    )
    builder.download_and_prepare()
