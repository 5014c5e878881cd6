"""Types <-> messages of `crucible_bridge.v1`, in pairs `x_to_v1` and `x_from_v1`.

Pure: nothing is looked up, stored or changed. Decoding raises InvalidField with the path of the field if anything is
malformed, and no other error. Decoding an encoded value gives an equal value.
"""

from crucible_bridge.codec import generated, prompts
from crucible_bridge.codec.code import (
    code_item_from_v1,
    code_item_to_v1,
    extract_code_request_from_v1,
    extract_code_request_to_v1,
    grade_code_request_from_v1,
    grade_code_request_to_v1,
)
from crucible_bridge.codec.content import model_input_from_v1, model_input_to_v1
from crucible_bridge.codec.data import (
    MAX_SAMPLE_ID_BYTES,
    conversation_from_v1,
    conversation_to_v1,
    datum_from_v1,
    datum_to_v1,
    sample_from_v1,
    sample_to_v1,
)
from crucible_bridge.codec.datasets import dataset_from_v1, dataset_to_v1
from crucible_bridge.codec.evaluation import (
    MAX_EVALUATORS,
    MAX_ID_BYTES,
    MAX_LABEL_BYTES,
    MAX_LABELS,
    MAX_NAME_BYTES,
    evaluator_spec_from_v1,
    evaluator_spec_to_v1,
    report_format_from_v1,
    report_format_to_v1,
)
from crucible_bridge.codec.events import (
    EventBatch,
    batch_from_v1,
    event_from_record,
    event_from_v1,
    event_kind_to_v1,
    event_kinds_from_v1,
    event_to_record,
    event_to_v1,
    events_from_records,
    page_to_v1,
)
from crucible_bridge.codec.generated import *  # noqa: F403 - all that it has is public, and listed there
from crucible_bridge.codec.grade_items import (
    grade_item_from_v1,
    grade_item_to_v1,
    response_from_v1,
    response_to_v1,
    rubric_item_from_v1,
    rubric_item_to_v1,
)
from crucible_bridge.codec.grades import (
    extracted_answers_from_v1,
    extracted_answers_to_v1,
    extracted_programs_from_v1,
    extracted_programs_to_v1,
    scores_from_v1,
    scores_to_v1,
)
from crucible_bridge.codec.grading import (
    MAX_ROUNDING_DIGITS,
    extract_answer_request_from_v1,
    extract_answer_request_to_v1,
    score_options_from_v1,
    score_options_to_v1,
    score_request_from_v1,
    score_request_to_v1,
)
from crucible_bridge.codec.model_calls import (
    forward_answer_to_v1 as forward_answer_to_v1,
)
from crucible_bridge.codec.model_calls import (
    forward_request_from_v1,
    forward_request_to_v1,
    logprobs_request_from_v1,
    logprobs_request_to_v1,
    sample_request_from_v1,
    sample_request_to_v1,
)
from crucible_bridge.codec.model_calls import (
    logprobs_answer_to_v1 as logprobs_answer_to_v1,
)
from crucible_bridge.codec.model_calls import (
    sample_answer_to_v1 as sample_answer_to_v1,
)
from crucible_bridge.codec.options import MAX_OPTION_DEPTH, options_from_v1, options_to_v1
from crucible_bridge.codec.orchestrator import (
    accepted_from_v1,
    accepted_to_v1,
    answer_from_v1,
    answer_to_v1,
    ended_from_v1,
    ended_to_v1,
    question_from_v1,
    question_to_v1,
    start_from_v1,
    start_to_v1,
)
from crucible_bridge.codec.plans import MAX_PLAN_ID_BYTES, plan_from_record, plan_to_record
from crucible_bridge.codec.prompts import *  # noqa: F403 - likewise
from crucible_bridge.codec.results import (
    metrics_from_v1,
    metrics_to_v1,
    problem_from_v1,
    problem_to_v1,
    state_to_v1,
    states_from_v1,
    verdict_from_v1,
    verdict_to_v1,
    verdicts_from_v1,
)
from crucible_bridge.codec.rubric import (
    rubric_grades_to_v1 as rubric_grades_to_v1,
)
from crucible_bridge.codec.tensors import array_from_v1, array_to_v1, tensor_from_v1, tensor_to_v1
from crucible_bridge.codec.worker import worker_load_onto_v1

__all__ = [
    "MAX_EVALUATORS",
    "MAX_ID_BYTES",
    "MAX_LABELS",
    "MAX_LABEL_BYTES",
    "MAX_NAME_BYTES",
    "MAX_OPTION_DEPTH",
    "MAX_PLAN_ID_BYTES",
    "MAX_ROUNDING_DIGITS",
    "MAX_SAMPLE_ID_BYTES",
    "EventBatch",
    "accepted_from_v1",
    "accepted_to_v1",
    "answer_from_v1",
    "answer_to_v1",
    "array_from_v1",
    "array_to_v1",
    "batch_from_v1",
    "code_item_from_v1",
    "code_item_to_v1",
    "conversation_from_v1",
    "conversation_to_v1",
    "dataset_from_v1",
    "dataset_to_v1",
    "datum_from_v1",
    "datum_to_v1",
    "ended_from_v1",
    "ended_to_v1",
    "evaluator_spec_from_v1",
    "evaluator_spec_to_v1",
    "event_from_record",
    "event_from_v1",
    "event_kind_to_v1",
    "event_kinds_from_v1",
    "event_to_record",
    "event_to_v1",
    "events_from_records",
    "extract_answer_request_from_v1",
    "extract_answer_request_to_v1",
    "extract_code_request_from_v1",
    "extract_code_request_to_v1",
    "extracted_answers_from_v1",
    "extracted_answers_to_v1",
    "extracted_programs_from_v1",
    "extracted_programs_to_v1",
    "forward_request_from_v1",
    "forward_request_to_v1",
    "grade_code_request_from_v1",
    "grade_code_request_to_v1",
    "grade_item_from_v1",
    "grade_item_to_v1",
    "logprobs_request_from_v1",
    "logprobs_request_to_v1",
    "metrics_from_v1",
    "metrics_to_v1",
    "model_input_from_v1",
    "model_input_to_v1",
    "options_from_v1",
    "options_to_v1",
    "page_to_v1",
    "plan_from_record",
    "plan_to_record",
    "problem_from_v1",
    "problem_to_v1",
    "question_from_v1",
    "question_to_v1",
    "report_format_from_v1",
    "report_format_to_v1",
    "response_from_v1",
    "response_to_v1",
    "rubric_item_from_v1",
    "rubric_item_to_v1",
    "sample_from_v1",
    "sample_request_from_v1",
    "sample_request_to_v1",
    "sample_to_v1",
    "score_options_from_v1",
    "score_options_to_v1",
    "score_request_from_v1",
    "score_request_to_v1",
    "scores_from_v1",
    "scores_to_v1",
    "start_from_v1",
    "start_to_v1",
    "state_to_v1",
    "states_from_v1",
    "tensor_from_v1",
    "tensor_to_v1",
    "verdict_from_v1",
    "verdict_to_v1",
    "verdicts_from_v1",
    "worker_load_onto_v1",
]
__all__ += generated.__all__
__all__ += prompts.__all__
