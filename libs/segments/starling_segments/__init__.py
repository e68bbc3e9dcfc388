"""The segment language: parse definitions, compile them to one plan, evaluate it for a user and explain the result. No I/O."""

from starling_segments.compile.compiler import InvalidPlan, compile_plan
from starling_segments.engine.accounts import AccountUpdate, account_updates, reports_to_account, set_account
from starling_segments.engine.compiled import Cause, Change
from starling_segments.engine.errors import Unmergeable
from starling_segments.engine.evaluator import Evaluator
from starling_segments.engine.leaves import EventView
from starling_segments.engine.plan import Plan
from starling_segments.engine.serialisation import dec_hook, enc_hook
from starling_segments.engine.state import (
    FORMAT,
    FORMAT_BEFORE,
    WRITTEN_FORMAT,
    AccountTally,
    Membership,
    UnknownStateFormat,
    UserState,
    decode_state,
    encode_state,
    plain,
    state_encoder,
)  # fmt: skip
from starling_segments.language.bounds import check_bounds, read_document
from starling_segments.language.identity import LEAVES
from starling_segments.language.tree import Condition, Measure, Ratio, Segment
from starling_segments.language.validation import NOT_YET, CostLimits, DefinitionRefused, FieldError, Known
from starling_segments.measures import MeasurePlan, compile_measures
from starling_segments.parse.cost import Cost, cost_of, cost_of_segment
from starling_segments.parse.document import parse_condition, parse_measure, parse_segment
from starling_segments.parse.schema import json_schema
from starling_segments.preview import (
    PreviewResult,
    RequiredHistory,
    SegmentPreview,
    adopt_history,
    compile_preview,
    evaluate,
    fold_history,
    limitations,
    plan_in_force,
    required_history,
    required_segments,
    stored_leaves,
)

__all__ = [
    "FORMAT",
    "FORMAT_BEFORE",
    "LEAVES",
    "NOT_YET",
    "WRITTEN_FORMAT",
    "AccountTally",
    "AccountUpdate",
    "Cause",
    "Change",
    "Condition",
    "Cost",
    "CostLimits",
    "DefinitionRefused",
    "Evaluator",
    "EventView",
    "FieldError",
    "InvalidPlan",
    "Known",
    "Measure",
    "MeasurePlan",
    "Membership",
    "Plan",
    "PreviewResult",
    "Ratio",
    "RequiredHistory",
    "Segment",
    "SegmentPreview",
    "UnknownStateFormat",
    "Unmergeable",
    "UserState",
    "account_updates",
    "adopt_history",
    "check_bounds",
    "compile_measures",
    "compile_plan",
    "compile_preview",
    "cost_of",
    "cost_of_segment",
    "dec_hook",
    "decode_state",
    "enc_hook",
    "encode_state",
    "evaluate",
    "fold_history",
    "json_schema",
    "limitations",
    "parse_condition",
    "parse_measure",
    "parse_segment",
    "plain",
    "plan_in_force",
    "read_document",
    "reports_to_account",
    "required_history",
    "required_segments",
    "set_account",
    "state_encoder",
    "stored_leaves",
]
