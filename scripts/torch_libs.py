#!/usr/bin/env python3
"""Prints, for LD_LIBRARY_PATH, the folders of the CUDA libraries that PyTorch brings: with them both sides of a comparison call
the same ones. Fails where PyTorch is not installed. Easy to get wrong: the machine's own, older ones may stand in the path."""
import glob
import os

import torch

top = os.path.join(os.path.dirname(os.path.dirname(torch.__file__)), "nvidia")
print(":".join(sorted(glob.glob(top + "/*/lib"))))
