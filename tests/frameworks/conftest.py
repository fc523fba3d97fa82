# SPDX-License-Identifier: Apache-2.0
"""One thread for PyTorch: tests run at the same time, and its threads wait for each other by turning round."""

import torch

torch.set_num_threads(1)
