"""Pure core: the body of every error response, `application/problem+json` with the fields that tracking clients read."""

from typing import Any

PROBLEM_JSON = "application/problem+json"


def problem(status: int, code: str, message: str, **more: Any) -> dict[str, Any]:
    """Return the RFC 9457 members plus `code`, `message` and `success: false`; `more` are additional members such as `errors`."""
    return {
        "type": f"https://starling.dev/problems/{code}",
        "title": code.replace("_", " "),
        "status": status,
        "detail": message,
        "code": code,
        "message": message,
        "success": False,
        **more,
    }
