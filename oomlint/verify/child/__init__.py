"""What runs inside a child process: Python 3.10 or newer, the standard library and the user's own torch, numpy and h5py. Nothing of the linter."""

import os

FOLDER = os.path.dirname(os.path.abspath(__file__))
