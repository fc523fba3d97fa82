# SPDX-License-Identifier: Apache-2.0
"""One thread for PyTorch: tests run side by side, and its threads wait for each other by turning round."""

import torch

torch.set_num_threads(1)
