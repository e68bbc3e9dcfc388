"""The segment language, pure: definitions parsed, compiled to one plan, folded, evaluated and explained. No I/O, no clock."""

from starling_segments.compile.compiler import BrokenPlan, compile_plan
from starling_segments.engine.accounts import Said, belong_to, speaks, to_tell
from starling_segments.engine.compiled import Cause, Change
from starling_segments.engine.evaluator import Evaluator
from starling_segments.engine.leaves import EventView
from starling_segments.engine.plan import Plan
from starling_segments.engine.serialisation import dec_hook, enc_hook
from starling_segments.engine.state import (
    AccountTally,
    Membership,
    UnknownStateFormat,
    UserState,
    decode_state,
    encode_state,
    plain,
)  # fmt: skip
from starling_segments.language.bounds import check_bounds, read_document
from starling_segments.language.identity import LEAVES
from starling_segments.language.tree import Condition, Measure, Ratio, Segment
from starling_segments.language.validation import NOT_YET, DefinitionRefused, Fault, Known
from starling_segments.measures import MeasurePlan, compile_measures
from starling_segments.parse.document import parse_condition, parse_measure, parse_segment
from starling_segments.parse.schema import json_schema
from starling_segments.preview import (
    Found,
    Past,
    Trial,
    adopt,
    blind_spots,
    built_on,
    folded,
    judged,
    kept_by,
    on_trial,
    past_for,
    plan_in_force,
)

__all__ = [
    "LEAVES",
    "NOT_YET",
    "AccountTally",
    "BrokenPlan",
    "Cause",
    "Change",
    "Condition",
    "DefinitionRefused",
    "Evaluator",
    "EventView",
    "Fault",
    "Found",
    "Known",
    "Measure",
    "MeasurePlan",
    "Membership",
    "Past",
    "Plan",
    "Ratio",
    "Said",
    "Segment",
    "Trial",
    "UnknownStateFormat",
    "UserState",
    "adopt",
    "belong_to",
    "blind_spots",
    "built_on",
    "check_bounds",
    "compile_measures",
    "compile_plan",
    "dec_hook",
    "decode_state",
    "enc_hook",
    "encode_state",
    "folded",
    "json_schema",
    "judged",
    "kept_by",
    "on_trial",
    "parse_condition",
    "parse_measure",
    "parse_segment",
    "past_for",
    "plain",
    "plan_in_force",
    "read_document",
    "speaks",
    "to_tell",
]
