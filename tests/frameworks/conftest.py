# SPDX-License-Identifier: Apache-2.0
"""Limits PyTorch to one thread: tests run in parallel, and PyTorch's threads spin while they wait for each other."""

import torch

torch.set_num_threads(1)
