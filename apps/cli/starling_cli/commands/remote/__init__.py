"""The commands that need the API of an installation alone, and the choice of the installation."""
