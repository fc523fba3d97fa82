# SPDX-License-Identifier: Apache-2.0
"""One thread for PyTorch: tests run side by side, and its threads wait for each other by turning round. And the folder of
all tests is on the path."""

import pathlib
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

torch.set_num_threads(1)
