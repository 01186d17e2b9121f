"""What programs print and what configuration files say, as data. Pure: no command, no file."""
