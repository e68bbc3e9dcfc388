"""Pure core: the campaigns in force, the state of a person, and the decisions about messages. No I/O, no clock."""
