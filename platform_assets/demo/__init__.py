"""The demo, the live run and the user interface, each started by one command."""
