"""The image of a stack: its build context, the build, and how a container of it is run."""
