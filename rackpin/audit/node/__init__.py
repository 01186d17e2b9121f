"""What runs on the machine that is looked at: standard library only, Python 3.10 and later.

:mod:`rackpin.audit.script` joins these modules into one program, so every name in them is
unique, and they import from each other by ``from rackpin.audit.node.X import …`` only.
"""
