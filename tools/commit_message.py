"""Checks a commit message: `python -m tools.commit_message FILE`. Git runs it through pre-commit, at the stage commit-msg."""

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

MAX_SUBJECT: Final = 72

_SUBJECT: Final = re.compile(r"(?P<scope>[a-z][a-z0-9_-]*): (?P<verb>\S+)(?: .*)?")
_BY_GIT: Final = re.compile(r'(?:Merge |Revert "|fixup! |squash! |amend! )')
_SCISSORS: Final = "# ------------------------ >8"

_NOT_VERBS: Final = frozenset(
    {
        "a", "all", "an", "and", "any", "both", "each", "every", "for", "from", "how", "in", "it", "its", "more", "new", "no",
        "nothing", "of", "on", "one", "only", "other", "some", "such", "that", "the", "their", "these", "they", "this", "those",
        "two", "what", "when", "where", "whether", "which", "who", "why", "with", "without",
    }
)  # fmt: skip
_IMPERATIVES: Final = frozenset({"bring", "embed", "exceed", "feed", "need", "proceed", "seed", "shed", "speed", "string"})
"""Verbs whose imperative ends like a participle."""
_OTHER_FORM: Final = re.compile(r"[a-z]{2,}(?:ed|ing|[^suia]s)")
"""A past form, a participle or a third person: `added`, `adding`, `adds`; not `pass`, `focus` or `alias`."""


def faults(message: str) -> Iterator[str]:
    """Yield what is wrong with the message, with the cure."""
    text = "\n".join(line.rstrip() for line in message.partition(_SCISSORS)[0].splitlines() if not line.startswith("#"))
    subject, *body = text.strip().split("\n")
    if _BY_GIT.match(subject):
        return
    if len(subject) > MAX_SUBJECT:
        yield f"the subject has {len(subject)} characters: shorten it to {MAX_SUBJECT} and move the rest to the body"
    if subject.endswith("."):
        yield "the subject ends with a full stop: remove it"
    parts = _SUBJECT.fullmatch(subject)
    if parts is None:
        yield "the subject has no scope: write `scope: verb object`, such as `ingest: refuse ids over 512 bytes`"
    elif (verb := parts["verb"].rstrip(",;")) in _NOT_VERBS or (_OTHER_FORM.fullmatch(verb) and verb not in _IMPERATIVES):
        yield f"{verb!r} is not an imperative: begin the subject with a verb, such as `add` or `refuse`"
    elif not verb[0].islower():
        yield f"{verb!r} begins with a capital letter: begin the subject with a verb in lower case"
    if body and body[0]:
        yield "the second line is not empty: separate the body from the subject by an empty line"


def main(arguments: Sequence[str]) -> int:
    """Print what is wrong with the message in the file; exit code 1 if there is anything."""
    [file] = arguments
    found = list(faults(Path(file).read_text()))
    sys.stderr.writelines(f"commit message: {fault}\n" for fault in found)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
