"""Edge: the route that encrypts stored secrets with the newest key."""

from typing import Annotated

from fastapi import APIRouter, Depends, Response

from starling_api.definitions.models import RotatedSecretsModel
from starling_api.definitions.repository import to_json
from starling_api.definitions.routes import COMMON, answered, commands_for
from starling_api.http.access.auth import Role
from starling_api.http.dependencies import UsedServices, Write, unversioned_write_by
from starling_api.http.problems import problems
from starling_api.ports import Stored


def rotation_routes() -> APIRouter:
    """Return the route, which needs the role admin."""
    router = APIRouter(prefix="/v1/secrets", tags=["secrets"], responses=problems(*COMMON, 422))

    @router.post(
        "/rotate",
        operation_id="rotate_secrets",
        summary="Encrypt stored secrets with the newest key",
        responses={200: {"model": RotatedSecretsModel}},
    )
    def rotate(services: UsedServices, write: Annotated[Write, Depends(unversioned_write_by(Role.ADMIN))]) -> Response:
        """Writes each webhook, target and import of this workspace with a secret that is plain, or encrypted with an older key. The
        secrets themselves do not change, and neither does a version. With `complete` false the time of a request was over: the same
        call goes on.
        """

        def act() -> Stored:
            found = commands_for(services, write).rotate_keys(write.author)
            rewritten = [{"kind": kind, "key": key} for kind, key in found.rewritten]
            unreadable = [one._asdict() for one in found.unreadable]
            if found.complete:
                passwords = services.imports.rotate_key(write.author.workspace, dry_run=write.dry_run)
                rewritten += [{"kind": "import", "key": key} for key in passwords.rewritten]
                unreadable += [{"kind": "import", "key": key, "reason": why} for key, why in passwords.unreadable.items()]
            answer = {"key_id": found.key_id, "rewritten": rewritten, "unreadable": unreadable, "complete": found.complete}
            return Stored(200, to_json(answer), None)

        return answered(services, write, act)

    return router
