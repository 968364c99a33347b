"""`smile replay`: runs recorded events through a program and prints its views."""
