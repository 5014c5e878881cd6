"""The logger `wandb`: a run of Weights & Biases, online or in files for `wandb sync`."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Literal

from crucible_worker.loggers.base import Delivery, Experiment, Hparams, Logger, LongText, MetricRow, make_folder

__all__ = ["WandbLogger"]

_STEP = "step"


@dataclasses.dataclass(kw_only=True)
class WandbLogger(Logger):
    """A run of Weights & Biases."""

    target: ClassVar[str | None] = "project"
    operator_options: ClassVar[frozenset[str]] = frozenset({"directory", "base_url"})
    delivery: ClassVar[Delivery] = Delivery.NOT_THE_LAST
    library: ClassVar[str | None] = "wandb"
    extra: ClassVar[str | None] = "wandb"
    variables: ClassVar[tuple[str, ...]] = ("WANDB_*", "NETRC", "XDG_CONFIG_HOME")

    project: str = "crucible-bridge"
    """The project that the run belongs to."""
    entity: str = ""
    """The user or team; if empty, the key's own."""
    group: str = ""
    """A group of runs."""
    mode: Literal["online", "offline"] = "online"
    """Whether entries are sent, with the key of WANDB_API_KEY or `wandb login`, or written for `wandb sync`."""
    directory: str = ""
    """Folder of wandb's files; if empty, the experiment's folder of the worker."""
    base_url: str = ""
    """A server other than WANDB_BASE_URL or wandb's own."""

    def open(self, experiment: Experiment) -> None:
        """Begin or resume the run.

        Raises:
            wandb.Error: there is no key, or the server cannot be reached.
        """
        import wandb  # pyright: ignore[reportMissingImports]

        directory = Path(self.directory or experiment.directory).expanduser()
        make_folder(directory, private=not self.directory)
        settings = wandb.Settings(
            console="off",
            disable_git=True,
            disable_code=True,
            silent=True,
            x_disable_stats=True,
            x_disable_meta=True,
            **({"base_url": self.base_url} if self.base_url else {}),
        )
        self._run = wandb.init(
            project=self.project,
            entity=self.entity or None,
            group=self.group or None,
            name=experiment.name,
            id=_id_of(experiment.run_id),
            resume="allow" if self.mode == "online" else None,
            mode=self.mode,
            dir=str(directory),
            config=dict(experiment.config),
            settings=settings,
        )
        self._folder = str(Path(self._run.dir).parent)
        self._axes: dict[str, str] = {}

    def log_metrics(self, rows: Sequence[MetricRow]) -> None:
        """Log each row, on the step axis of its family: wandb's own steps never go back, and late rows do."""
        for row in rows:
            axis = f"{row.family}/{_STEP}" if row.family else _STEP
            for name in row.values:
                self._define(name, axis)
            place = {} if row.step is None else {axis: row.step}
            self._run.log({**row.values, **place}, step=row.sequence, commit=True)

    def log_hparams(self, hparams: Hparams) -> None:
        """Add them to the run's configuration."""
        self._run.config.update(dict(hparams.values), allow_val_change=True)

    def log_long_text(self, text: LongText) -> None:
        """Log a text as a page of HTML that shows it as it is."""
        import html

        import wandb  # pyright: ignore[reportMissingImports]

        page = wandb.Html(f"<pre>{html.escape(text.text)}</pre>", inject=False)
        place = {} if text.step is None else {_STEP: text.step}
        self._run.log({text.key: page, **place}, step=text.sequence, commit=True)

    def close(self) -> None:
        """Wait until all is sent, and end the run."""
        self._run.finish()

    def get_url(self) -> str:
        """The run's page, or the folder of an offline run."""
        return self._run.url or self._folder

    def _define(self, name: str, axis: str) -> None:
        """Name the axis of a metric, once."""
        if self._axes.get(name) == axis:
            return
        if axis not in self._axes:
            self._run.define_metric(axis, hidden=True)
            self._axes[axis] = axis
        self._run.define_metric(name, step_metric=axis)
        self._axes[name] = axis


def _id_of(run_id: str) -> str:
    """A run id without the characters that wandb's ids cannot have."""
    return re.sub(r"[/\\#?%:]", "-", run_id)
