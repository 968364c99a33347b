"""Test files of users and of SMILE itself: a program, its events, and the rows that subscribers have to receive."""
