"""The frozen types of the bridge: everything that crosses it, in Python. None of them depends on the wire format."""

# ruff: noqa: F403 - all names of each module are public, and listed in its `__all__`

from crucible_bridge.types import (
    callers,
    code,
    data,
    datasets,
    files,
    generated,
    grade_items,
    grading,
    hub,
    messages,
    metrics,
    model_calls,
    models,
    orchestrator,
    prompts,
    ragged,
    requests,
    results,
    rollouts,
    rows,
    rubric,
    tensors,
    tools,
    trajectories,
    transcripts,
    worker,
)
from crucible_bridge.types.bounds import (
    COMPARE_EVALUATIONS_REQUEST_EVALUATION_IDS_MAX_COUNT as MAX_COMPARED_EVALUATIONS,
)
from crucible_bridge.types.callers import *
from crucible_bridge.types.code import *
from crucible_bridge.types.data import *
from crucible_bridge.types.datasets import *
from crucible_bridge.types.files import *
from crucible_bridge.types.generated import *
from crucible_bridge.types.grade_items import *
from crucible_bridge.types.grading import *
from crucible_bridge.types.hub import *
from crucible_bridge.types.messages import *
from crucible_bridge.types.metrics import *
from crucible_bridge.types.model_calls import *
from crucible_bridge.types.models import *
from crucible_bridge.types.orchestrator import *
from crucible_bridge.types.prompts import *
from crucible_bridge.types.ragged import *
from crucible_bridge.types.requests import *
from crucible_bridge.types.results import *
from crucible_bridge.types.rollouts import *
from crucible_bridge.types.rows import *
from crucible_bridge.types.rubric import *
from crucible_bridge.types.tensors import *
from crucible_bridge.types.tools import *
from crucible_bridge.types.trajectories import *
from crucible_bridge.types.transcripts import *
from crucible_bridge.types.worker import *

__all__ = ["MAX_COMPARED_EVALUATIONS"]
__all__ += callers.__all__
__all__ += code.__all__
__all__ += data.__all__
__all__ += datasets.__all__
__all__ += files.__all__
__all__ += generated.__all__
__all__ += grade_items.__all__
__all__ += grading.__all__
__all__ += hub.__all__
__all__ += messages.__all__
__all__ += metrics.__all__
__all__ += model_calls.__all__
__all__ += models.__all__
__all__ += orchestrator.__all__
__all__ += prompts.__all__
__all__ += ragged.__all__
__all__ += requests.__all__
__all__ += results.__all__
__all__ += rollouts.__all__
__all__ += rows.__all__
__all__ += rubric.__all__
__all__ += tensors.__all__
__all__ += tools.__all__
__all__ += trajectories.__all__
__all__ += transcripts.__all__
__all__ += worker.__all__
