"""Edge: the rights of the services at the broker, created before the deploy step: `python -m starling_common.kafka.access.deploy`.

Its user administers access to the broker: one of `super.users`, or one with DESCRIBE and ALTER on the cluster.
`starling deploy acls` does the same at a terminal, and prints the rights in other forms.
"""

import sys
from typing import Annotated

from confluent_kafka.admin import AdminClient
from pydantic import Field
from pydantic_settings import BaseSettings

from starling_common.kafka.access.acls import AclsFailed, create, difference, remove
from starling_common.kafka.access.rights import PRINCIPAL, Principals, load_services
from starling_common.kafka.security import connection_config
from starling_common.kafka.topics import load_catalogue
from starling_common.settings import FROM_ENVIRONMENT, Kafka


class AclSettings(BaseSettings):
    """The settings of the step."""

    model_config = FROM_ENVIRONMENT

    kafka: Kafka
    acls_principal: Annotated[
        str,
        Field(
            description="pattern of the users' names; {service} stands for the service", examples=["User:CN={service},O=Example"]
        ),
    ] = PRINCIPAL
    acls_prune: Annotated[bool, Field(description="remove other rights of the same users")] = False


def main() -> int:
    """Create the missing rights; return the exit code."""
    settings = AclSettings()
    try:
        principals = Principals(settings.acls_principal)
        admin = AdminClient({**connection_config(settings.kafka.brokers), "log_level": 4})
        found = difference(admin, load_services(load_catalogue()), principals)
        create(admin, found.missing)
        removed = found.needless if settings.acls_prune else ()
        remove(admin, removed)
    except (AclsFailed, ValueError) as error:
        sys.stderr.write(f"rights: {error}\n")
        return 1
    sys.stdout.writelines(f"{sign} {rule}\n" for sign, rules in (("+", found.missing), ("-", removed)) for rule in rules)
    sys.stdout.write(f"{len(found.missing)} created, {len(removed)} removed\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
