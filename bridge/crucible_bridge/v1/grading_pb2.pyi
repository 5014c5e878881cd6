from crucible_bridge.v1 import models_pb2 as _models_pb2
from crucible_bridge.v1 import types_pb2 as _types_pb2
from google.protobuf import struct_pb2 as _struct_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ExactComparison(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EXACT_COMPARISON_UNSPECIFIED: _ClassVar[ExactComparison]
    EXACT_COMPARISON_TEXT: _ClassVar[ExactComparison]
    EXACT_COMPARISON_NUMBER: _ClassVar[ExactComparison]
    EXACT_COMPARISON_LIST: _ClassVar[ExactComparison]
    EXACT_COMPARISON_JSON: _ClassVar[ExactComparison]
EXACT_COMPARISON_UNSPECIFIED: ExactComparison
EXACT_COMPARISON_TEXT: ExactComparison
EXACT_COMPARISON_NUMBER: ExactComparison
EXACT_COMPARISON_LIST: ExactComparison
EXACT_COMPARISON_JSON: ExactComparison

class GradeItem(_message.Message):
    __slots__ = ("id", "response", "answer", "targets")
    ID_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    TARGETS_FIELD_NUMBER: _ClassVar[int]
    id: str
    response: bytes
    answer: bytes
    targets: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, id: _Optional[str] = ..., response: _Optional[bytes] = ..., answer: _Optional[bytes] = ..., targets: _Optional[_Iterable[str]] = ...) -> None: ...

class Grade(_message.Message):
    __slots__ = ("id", "verdict", "score", "extracted", "extraction", "method", "reason", "duration_ns", "problem")
    ID_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    EXTRACTED_FIELD_NUMBER: _ClassVar[int]
    EXTRACTION_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DURATION_NS_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    id: str
    verdict: _types_pb2.Verdict
    score: float
    extracted: str
    extraction: str
    method: str
    reason: str
    duration_ns: int
    problem: _types_pb2.Problem
    def __init__(self, id: _Optional[str] = ..., verdict: _Optional[_Union[_types_pb2.Verdict, str]] = ..., score: _Optional[float] = ..., extracted: _Optional[str] = ..., extraction: _Optional[str] = ..., method: _Optional[str] = ..., reason: _Optional[str] = ..., duration_ns: _Optional[int] = ..., problem: _Optional[_Union[_types_pb2.Problem, _Mapping]] = ...) -> None: ...

class MathPolicy(_message.Message):
    __slots__ = ("ordered_lists", "rounding_digits", "percent_lenient", "units_optional", "equation_value", "interval_or_pair", "require_reduced", "degrees", "rename_variables", "tuple_or_set", "log_is_natural", "delta_value", "math_in_prose", "integration_constants", "chemical_formulas", "vector_notations", "chinese_words", "dates_and_times", "regional_numerals", "unit_names", "fold_base_letters", "expand_dots", "log_abs_optional")
    ORDERED_LISTS_FIELD_NUMBER: _ClassVar[int]
    ROUNDING_DIGITS_FIELD_NUMBER: _ClassVar[int]
    PERCENT_LENIENT_FIELD_NUMBER: _ClassVar[int]
    UNITS_OPTIONAL_FIELD_NUMBER: _ClassVar[int]
    EQUATION_VALUE_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_OR_PAIR_FIELD_NUMBER: _ClassVar[int]
    REQUIRE_REDUCED_FIELD_NUMBER: _ClassVar[int]
    DEGREES_FIELD_NUMBER: _ClassVar[int]
    RENAME_VARIABLES_FIELD_NUMBER: _ClassVar[int]
    TUPLE_OR_SET_FIELD_NUMBER: _ClassVar[int]
    LOG_IS_NATURAL_FIELD_NUMBER: _ClassVar[int]
    DELTA_VALUE_FIELD_NUMBER: _ClassVar[int]
    MATH_IN_PROSE_FIELD_NUMBER: _ClassVar[int]
    INTEGRATION_CONSTANTS_FIELD_NUMBER: _ClassVar[int]
    CHEMICAL_FORMULAS_FIELD_NUMBER: _ClassVar[int]
    VECTOR_NOTATIONS_FIELD_NUMBER: _ClassVar[int]
    CHINESE_WORDS_FIELD_NUMBER: _ClassVar[int]
    DATES_AND_TIMES_FIELD_NUMBER: _ClassVar[int]
    REGIONAL_NUMERALS_FIELD_NUMBER: _ClassVar[int]
    UNIT_NAMES_FIELD_NUMBER: _ClassVar[int]
    FOLD_BASE_LETTERS_FIELD_NUMBER: _ClassVar[int]
    EXPAND_DOTS_FIELD_NUMBER: _ClassVar[int]
    LOG_ABS_OPTIONAL_FIELD_NUMBER: _ClassVar[int]
    ordered_lists: bool
    rounding_digits: int
    percent_lenient: bool
    units_optional: bool
    equation_value: bool
    interval_or_pair: bool
    require_reduced: bool
    degrees: bool
    rename_variables: bool
    tuple_or_set: bool
    log_is_natural: bool
    delta_value: bool
    math_in_prose: bool
    integration_constants: bool
    chemical_formulas: bool
    vector_notations: bool
    chinese_words: bool
    dates_and_times: bool
    regional_numerals: bool
    unit_names: bool
    fold_base_letters: bool
    expand_dots: bool
    log_abs_optional: bool
    def __init__(self, ordered_lists: _Optional[bool] = ..., rounding_digits: _Optional[int] = ..., percent_lenient: _Optional[bool] = ..., units_optional: _Optional[bool] = ..., equation_value: _Optional[bool] = ..., interval_or_pair: _Optional[bool] = ..., require_reduced: _Optional[bool] = ..., degrees: _Optional[bool] = ..., rename_variables: _Optional[bool] = ..., tuple_or_set: _Optional[bool] = ..., log_is_natural: _Optional[bool] = ..., delta_value: _Optional[bool] = ..., math_in_prose: _Optional[bool] = ..., integration_constants: _Optional[bool] = ..., chemical_formulas: _Optional[bool] = ..., vector_notations: _Optional[bool] = ..., chinese_words: _Optional[bool] = ..., dates_and_times: _Optional[bool] = ..., regional_numerals: _Optional[bool] = ..., unit_names: _Optional[bool] = ..., fold_base_letters: _Optional[bool] = ..., expand_dots: _Optional[bool] = ..., log_abs_optional: _Optional[bool] = ...) -> None: ...

class GradeMathRequest(_message.Message):
    __slots__ = ("items", "policy")
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[GradeItem]
    policy: MathPolicy
    def __init__(self, items: _Optional[_Iterable[_Union[GradeItem, _Mapping]]] = ..., policy: _Optional[_Union[MathPolicy, _Mapping]] = ...) -> None: ...

class GradeMathResponse(_message.Message):
    __slots__ = ("grades", "policy_version")
    GRADES_FIELD_NUMBER: _ClassVar[int]
    POLICY_VERSION_FIELD_NUMBER: _ClassVar[int]
    grades: _containers.RepeatedCompositeFieldContainer[Grade]
    policy_version: str
    def __init__(self, grades: _Optional[_Iterable[_Union[Grade, _Mapping]]] = ..., policy_version: _Optional[str] = ...) -> None: ...

class ExtractAnswerRequest(_message.Message):
    __slots__ = ("responses",)
    RESPONSES_FIELD_NUMBER: _ClassVar[int]
    responses: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, responses: _Optional[_Iterable[bytes]] = ...) -> None: ...

class ExtractAnswerResponse(_message.Message):
    __slots__ = ("answers",)
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    answers: _containers.RepeatedCompositeFieldContainer[ExtractedAnswer]
    def __init__(self, answers: _Optional[_Iterable[_Union[ExtractedAnswer, _Mapping]]] = ...) -> None: ...

class ExtractedAnswer(_message.Message):
    __slots__ = ("answer", "extraction", "problem", "reason")
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    EXTRACTION_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    answer: str
    extraction: str
    problem: _types_pb2.Problem
    reason: str
    def __init__(self, answer: _Optional[str] = ..., extraction: _Optional[str] = ..., problem: _Optional[_Union[_types_pb2.Problem, _Mapping]] = ..., reason: _Optional[str] = ...) -> None: ...

class ScoreOptions(_message.Message):
    __slots__ = ("exact_match", "contains", "regex", "numeric", "f1", "bleu", "rouge", "multiple_choice", "format", "threshold", "grader", "grader_options")
    EXACT_MATCH_FIELD_NUMBER: _ClassVar[int]
    CONTAINS_FIELD_NUMBER: _ClassVar[int]
    REGEX_FIELD_NUMBER: _ClassVar[int]
    NUMERIC_FIELD_NUMBER: _ClassVar[int]
    F1_FIELD_NUMBER: _ClassVar[int]
    BLEU_FIELD_NUMBER: _ClassVar[int]
    ROUGE_FIELD_NUMBER: _ClassVar[int]
    MULTIPLE_CHOICE_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    GRADER_FIELD_NUMBER: _ClassVar[int]
    GRADER_OPTIONS_FIELD_NUMBER: _ClassVar[int]
    exact_match: TextScorer
    contains: TextScorer
    regex: RegexScorer
    numeric: NumericScorer
    f1: TextScorer
    bleu: TextScorer
    rouge: TextScorer
    multiple_choice: ChoiceScorer
    format: FormatScorer
    threshold: float
    grader: str
    grader_options: _struct_pb2.Struct
    def __init__(self, exact_match: _Optional[_Union[TextScorer, _Mapping]] = ..., contains: _Optional[_Union[TextScorer, _Mapping]] = ..., regex: _Optional[_Union[RegexScorer, _Mapping]] = ..., numeric: _Optional[_Union[NumericScorer, _Mapping]] = ..., f1: _Optional[_Union[TextScorer, _Mapping]] = ..., bleu: _Optional[_Union[TextScorer, _Mapping]] = ..., rouge: _Optional[_Union[TextScorer, _Mapping]] = ..., multiple_choice: _Optional[_Union[ChoiceScorer, _Mapping]] = ..., format: _Optional[_Union[FormatScorer, _Mapping]] = ..., threshold: _Optional[float] = ..., grader: _Optional[str] = ..., grader_options: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class TextScorer(_message.Message):
    __slots__ = ("case_sensitive", "normalize_whitespace", "strip_punctuation", "compare", "ordered_lists")
    CASE_SENSITIVE_FIELD_NUMBER: _ClassVar[int]
    NORMALIZE_WHITESPACE_FIELD_NUMBER: _ClassVar[int]
    STRIP_PUNCTUATION_FIELD_NUMBER: _ClassVar[int]
    COMPARE_FIELD_NUMBER: _ClassVar[int]
    ORDERED_LISTS_FIELD_NUMBER: _ClassVar[int]
    case_sensitive: bool
    normalize_whitespace: bool
    strip_punctuation: bool
    compare: ExactComparison
    ordered_lists: bool
    def __init__(self, case_sensitive: _Optional[bool] = ..., normalize_whitespace: _Optional[bool] = ..., strip_punctuation: _Optional[bool] = ..., compare: _Optional[_Union[ExactComparison, str]] = ..., ordered_lists: _Optional[bool] = ...) -> None: ...

class RegexScorer(_message.Message):
    __slots__ = ("full",)
    FULL_FIELD_NUMBER: _ClassVar[int]
    full: bool
    def __init__(self, full: _Optional[bool] = ...) -> None: ...

class NumericScorer(_message.Message):
    __slots__ = ("absolute_tolerance", "relative_tolerance")
    ABSOLUTE_TOLERANCE_FIELD_NUMBER: _ClassVar[int]
    RELATIVE_TOLERANCE_FIELD_NUMBER: _ClassVar[int]
    absolute_tolerance: float
    relative_tolerance: float
    def __init__(self, absolute_tolerance: _Optional[float] = ..., relative_tolerance: _Optional[float] = ...) -> None: ...

class ChoiceScorer(_message.Message):
    __slots__ = ("choices",)
    CHOICES_FIELD_NUMBER: _ClassVar[int]
    choices: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, choices: _Optional[_Iterable[str]] = ...) -> None: ...

class FormatScorer(_message.Message):
    __slots__ = ("boxed", "marks", "json_schema")
    BOXED_FIELD_NUMBER: _ClassVar[int]
    MARKS_FIELD_NUMBER: _ClassVar[int]
    JSON_SCHEMA_FIELD_NUMBER: _ClassVar[int]
    boxed: bool
    marks: Marks
    json_schema: str
    def __init__(self, boxed: _Optional[bool] = ..., marks: _Optional[_Union[Marks, _Mapping]] = ..., json_schema: _Optional[str] = ...) -> None: ...

class Marks(_message.Message):
    __slots__ = ("marks",)
    MARKS_FIELD_NUMBER: _ClassVar[int]
    marks: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, marks: _Optional[_Iterable[str]] = ...) -> None: ...

class ScoreRequest(_message.Message):
    __slots__ = ("items", "options")
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[GradeItem]
    options: ScoreOptions
    def __init__(self, items: _Optional[_Iterable[_Union[GradeItem, _Mapping]]] = ..., options: _Optional[_Union[ScoreOptions, _Mapping]] = ...) -> None: ...

class ScoreResponse(_message.Message):
    __slots__ = ("grades",)
    GRADES_FIELD_NUMBER: _ClassVar[int]
    grades: _containers.RepeatedCompositeFieldContainer[Grade]
    def __init__(self, grades: _Optional[_Iterable[_Union[Grade, _Mapping]]] = ...) -> None: ...

class CodeItem(_message.Message):
    __slots__ = ("id", "response", "prefix", "tests", "problem_id")
    ID_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    TESTS_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    response: bytes
    prefix: str
    tests: _containers.RepeatedCompositeFieldContainer[CodeTest]
    problem_id: str
    def __init__(self, id: _Optional[str] = ..., response: _Optional[bytes] = ..., prefix: _Optional[str] = ..., tests: _Optional[_Iterable[_Union[CodeTest, _Mapping]]] = ..., problem_id: _Optional[str] = ...) -> None: ...

class CodeTest(_message.Message):
    __slots__ = ("assertions", "stdio", "call", "input_output")
    ASSERTIONS_FIELD_NUMBER: _ClassVar[int]
    STDIO_FIELD_NUMBER: _ClassVar[int]
    CALL_FIELD_NUMBER: _ClassVar[int]
    INPUT_OUTPUT_FIELD_NUMBER: _ClassVar[int]
    assertions: str
    stdio: StdioTest
    call: CallTest
    input_output: InputOutputTests
    def __init__(self, assertions: _Optional[str] = ..., stdio: _Optional[_Union[StdioTest, _Mapping]] = ..., call: _Optional[_Union[CallTest, _Mapping]] = ..., input_output: _Optional[_Union[InputOutputTests, _Mapping]] = ...) -> None: ...

class StdioTest(_message.Message):
    __slots__ = ("stdin", "stdout", "comparison")
    STDIN_FIELD_NUMBER: _ClassVar[int]
    STDOUT_FIELD_NUMBER: _ClassVar[int]
    COMPARISON_FIELD_NUMBER: _ClassVar[int]
    stdin: str
    stdout: str
    comparison: OutputComparison
    def __init__(self, stdin: _Optional[str] = ..., stdout: _Optional[str] = ..., comparison: _Optional[_Union[OutputComparison, _Mapping]] = ...) -> None: ...

class OutputComparison(_message.Message):
    __slots__ = ("by_token", "absolute_tolerance", "relative_tolerance")
    BY_TOKEN_FIELD_NUMBER: _ClassVar[int]
    ABSOLUTE_TOLERANCE_FIELD_NUMBER: _ClassVar[int]
    RELATIVE_TOLERANCE_FIELD_NUMBER: _ClassVar[int]
    by_token: bool
    absolute_tolerance: float
    relative_tolerance: float
    def __init__(self, by_token: _Optional[bool] = ..., absolute_tolerance: _Optional[float] = ..., relative_tolerance: _Optional[float] = ...) -> None: ...

class InputOutputTests(_message.Message):
    __slots__ = ("json", "comparison")
    JSON_FIELD_NUMBER: _ClassVar[int]
    COMPARISON_FIELD_NUMBER: _ClassVar[int]
    json: str
    comparison: OutputComparison
    def __init__(self, json: _Optional[str] = ..., comparison: _Optional[_Union[OutputComparison, _Mapping]] = ...) -> None: ...

class CallTest(_message.Message):
    __slots__ = ("function", "arguments_json", "expected_json", "comparison")
    FUNCTION_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_JSON_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_JSON_FIELD_NUMBER: _ClassVar[int]
    COMPARISON_FIELD_NUMBER: _ClassVar[int]
    function: str
    arguments_json: str
    expected_json: str
    comparison: OutputComparison
    def __init__(self, function: _Optional[str] = ..., arguments_json: _Optional[str] = ..., expected_json: _Optional[str] = ..., comparison: _Optional[_Union[OutputComparison, _Mapping]] = ...) -> None: ...

class CodeLimits(_message.Message):
    __slots__ = ("timeout_ms", "memory_mb", "output_bytes")
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_MB_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_BYTES_FIELD_NUMBER: _ClassVar[int]
    timeout_ms: int
    memory_mb: int
    output_bytes: int
    def __init__(self, timeout_ms: _Optional[int] = ..., memory_mb: _Optional[int] = ..., output_bytes: _Optional[int] = ...) -> None: ...

class GradeCodeRequest(_message.Message):
    __slots__ = ("items", "language", "limits", "k", "image")
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    K_FIELD_NUMBER: _ClassVar[int]
    IMAGE_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[CodeItem]
    language: str
    limits: CodeLimits
    k: _containers.RepeatedScalarFieldContainer[int]
    image: str
    def __init__(self, items: _Optional[_Iterable[_Union[CodeItem, _Mapping]]] = ..., language: _Optional[str] = ..., limits: _Optional[_Union[CodeLimits, _Mapping]] = ..., k: _Optional[_Iterable[int]] = ..., image: _Optional[str] = ...) -> None: ...

class GradeCodeResponse(_message.Message):
    __slots__ = ("grades", "problems", "metrics")
    GRADES_FIELD_NUMBER: _ClassVar[int]
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    grades: _containers.RepeatedCompositeFieldContainer[Grade]
    problems: _containers.RepeatedCompositeFieldContainer[ProblemCounts]
    metrics: _types_pb2.Metrics
    def __init__(self, grades: _Optional[_Iterable[_Union[Grade, _Mapping]]] = ..., problems: _Optional[_Iterable[_Union[ProblemCounts, _Mapping]]] = ..., metrics: _Optional[_Union[_types_pb2.Metrics, _Mapping]] = ...) -> None: ...

class ExtractCodeRequest(_message.Message):
    __slots__ = ("responses", "names", "language")
    RESPONSES_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    responses: _containers.RepeatedScalarFieldContainer[bytes]
    names: _containers.RepeatedScalarFieldContainer[str]
    language: str
    def __init__(self, responses: _Optional[_Iterable[bytes]] = ..., names: _Optional[_Iterable[str]] = ..., language: _Optional[str] = ...) -> None: ...

class ExtractCodeResponse(_message.Message):
    __slots__ = ("programs",)
    PROGRAMS_FIELD_NUMBER: _ClassVar[int]
    programs: _containers.RepeatedCompositeFieldContainer[ExtractedProgram]
    def __init__(self, programs: _Optional[_Iterable[_Union[ExtractedProgram, _Mapping]]] = ...) -> None: ...

class ExtractedProgram(_message.Message):
    __slots__ = ("program", "extraction", "problem", "reason")
    PROGRAM_FIELD_NUMBER: _ClassVar[int]
    EXTRACTION_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    program: str
    extraction: str
    problem: _types_pb2.Problem
    reason: str
    def __init__(self, program: _Optional[str] = ..., extraction: _Optional[str] = ..., problem: _Optional[_Union[_types_pb2.Problem, _Mapping]] = ..., reason: _Optional[str] = ...) -> None: ...

class ProblemCounts(_message.Message):
    __slots__ = ("problem_id", "samples", "correct", "unscored")
    PROBLEM_ID_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    CORRECT_FIELD_NUMBER: _ClassVar[int]
    UNSCORED_FIELD_NUMBER: _ClassVar[int]
    problem_id: str
    samples: int
    correct: int
    unscored: int
    def __init__(self, problem_id: _Optional[str] = ..., samples: _Optional[int] = ..., correct: _Optional[int] = ..., unscored: _Optional[int] = ...) -> None: ...

class RubricCriterion(_message.Message):
    __slots__ = ("name", "description", "weight", "min", "max")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    MIN_FIELD_NUMBER: _ClassVar[int]
    MAX_FIELD_NUMBER: _ClassVar[int]
    name: str
    description: str
    weight: float
    min: float
    max: float
    def __init__(self, name: _Optional[str] = ..., description: _Optional[str] = ..., weight: _Optional[float] = ..., min: _Optional[float] = ..., max: _Optional[float] = ...) -> None: ...

class RubricItem(_message.Message):
    __slots__ = ("id", "question", "response", "references", "other", "prior")
    ID_FIELD_NUMBER: _ClassVar[int]
    QUESTION_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_FIELD_NUMBER: _ClassVar[int]
    REFERENCES_FIELD_NUMBER: _ClassVar[int]
    OTHER_FIELD_NUMBER: _ClassVar[int]
    PRIOR_FIELD_NUMBER: _ClassVar[int]
    id: str
    question: str
    response: bytes
    references: _containers.RepeatedScalarFieldContainer[str]
    other: bytes
    prior: _types_pb2.Verdict
    def __init__(self, id: _Optional[str] = ..., question: _Optional[str] = ..., response: _Optional[bytes] = ..., references: _Optional[_Iterable[str]] = ..., other: _Optional[bytes] = ..., prior: _Optional[_Union[_types_pb2.Verdict, str]] = ...) -> None: ...

class GradeRubricRequest(_message.Message):
    __slots__ = ("judge", "items", "criteria", "threshold", "sampling", "renderer", "limits")
    JUDGE_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    CRITERIA_FIELD_NUMBER: _ClassVar[int]
    THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    RENDERER_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    judge: _types_pb2.ModelRef
    items: _containers.RepeatedCompositeFieldContainer[RubricItem]
    criteria: _containers.RepeatedCompositeFieldContainer[RubricCriterion]
    threshold: float
    sampling: _types_pb2.SamplingParams
    renderer: str
    limits: _models_pb2.BatchLimits
    def __init__(self, judge: _Optional[_Union[_types_pb2.ModelRef, _Mapping]] = ..., items: _Optional[_Iterable[_Union[RubricItem, _Mapping]]] = ..., criteria: _Optional[_Iterable[_Union[RubricCriterion, _Mapping]]] = ..., threshold: _Optional[float] = ..., sampling: _Optional[_Union[_types_pb2.SamplingParams, _Mapping]] = ..., renderer: _Optional[str] = ..., limits: _Optional[_Union[_models_pb2.BatchLimits, _Mapping]] = ...) -> None: ...

class CriterionScore(_message.Message):
    __slots__ = ("name", "score", "reason", "clamped")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    CLAMPED_FIELD_NUMBER: _ClassVar[int]
    name: str
    score: float
    reason: str
    clamped: bool
    def __init__(self, name: _Optional[str] = ..., score: _Optional[float] = ..., reason: _Optional[str] = ..., clamped: _Optional[bool] = ...) -> None: ...

class RubricGrade(_message.Message):
    __slots__ = ("grade", "criteria", "prompt_tokens", "completion_tokens")
    GRADE_FIELD_NUMBER: _ClassVar[int]
    CRITERIA_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    COMPLETION_TOKENS_FIELD_NUMBER: _ClassVar[int]
    grade: Grade
    criteria: _containers.RepeatedCompositeFieldContainer[CriterionScore]
    prompt_tokens: int
    completion_tokens: int
    def __init__(self, grade: _Optional[_Union[Grade, _Mapping]] = ..., criteria: _Optional[_Iterable[_Union[CriterionScore, _Mapping]]] = ..., prompt_tokens: _Optional[int] = ..., completion_tokens: _Optional[int] = ...) -> None: ...

class GradeRubricResponse(_message.Message):
    __slots__ = ("grades", "prompt_tokens", "completion_tokens", "judge_fingerprint", "usage")
    GRADES_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    COMPLETION_TOKENS_FIELD_NUMBER: _ClassVar[int]
    JUDGE_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    grades: _containers.RepeatedCompositeFieldContainer[RubricGrade]
    prompt_tokens: int
    completion_tokens: int
    judge_fingerprint: str
    usage: _types_pb2.Usage
    def __init__(self, grades: _Optional[_Iterable[_Union[RubricGrade, _Mapping]]] = ..., prompt_tokens: _Optional[int] = ..., completion_tokens: _Optional[int] = ..., judge_fingerprint: _Optional[str] = ..., usage: _Optional[_Union[_types_pb2.Usage, _Mapping]] = ...) -> None: ...
