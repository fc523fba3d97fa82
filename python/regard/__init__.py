# SPDX-License-Identifier: Apache-2.0
"""Exact attention on CPUs: softmax(scale · Q · Kᵀ + mask) · V, and every intermediate value.

    import numpy, regard
    q = k = v = numpy.random.rand(1, 8, 128, 64).astype("float32")
    context = regard.attention(q, k, v, causal=True)

Functions have the same names as in the C++ library; `attention` is an alias of `attention_forward`. Arrays of NumPy,
PyTorch, JAX and other libraries are read and written without copies. help(regard.attention) lists all options for
attention; docs/guide/python.md describes the other functions.

    regard.torch          scaled_dot_product_attention for PyTorch
    regard.transformers   attn_implementation="regard"
    regard.jax            attention under jit, vmap and grad
    regard.onnx           the Attention operator
    regard.distributed    attention distributed over ranks, with mpi4py or torch.distributed

These five modules must be imported explicitly. Read next: attention_operators.py.
"""

from . import _regard
from ._regard import kAttentionChunkKeys as kAttentionChunkKeys
from .attention_inspection import attention_columns as attention_columns
from .attention_inspection import attention_weights as attention_weights
from .attention_inspection import attention_with_statistics as attention_with_statistics
from .attention_merging import attention_merge as attention_merge
from .attention_merging import attention_merge_lse as attention_merge_lse
from .attention_merging import attention_partials as attention_partials
from .attention_operators import attention as attention
from .attention_operators import attention_backward as attention_backward
from .attention_operators import attention_forward as attention_forward
from .embedding import cross_entropy_forward as cross_entropy_forward
from .embedding import embedding_backward as embedding_backward
from .embedding import embedding_forward as embedding_forward
from .embedding import rotary_backward as rotary_backward
from .embedding import rotary_forward as rotary_forward
from .figure import show as show
from .kv_cache import KvCache as KvCache
from .kv_cache import attention_decode as attention_decode
from .kv_cache import attention_decode_partials as attention_decode_partials
from .layers import PackedLinear as PackedLinear
from .layers import activation_backward as activation_backward
from .layers import activation_forward as activation_forward
from .layers import linear_backward as linear_backward
from .layers import linear_forward as linear_forward
from .layers import swiglu_backward as swiglu_backward
from .layers import swiglu_forward as swiglu_forward
from .multi_head import multi_head_attention_backward as multi_head_attention_backward
from .multi_head import multi_head_attention_forward as multi_head_attention_forward
from .named_results import AttentionColumns as AttentionColumns
from .named_results import AttentionGradients as AttentionGradients
from .named_results import AttentionPartials as AttentionPartials
from .named_results import AttentionStatistics as AttentionStatistics
from .named_results import Evaluation as Evaluation
from .named_results import HeadEvent as HeadEvent
from .named_results import InstructionSet as InstructionSet
from .named_results import LayerInspection as LayerInspection
from .named_results import LayerNormGradients as LayerNormGradients
from .named_results import LinearGradients as LinearGradients
from .named_results import MultiHeadForwardState as MultiHeadForwardState
from .named_results import MultiHeadGradients as MultiHeadGradients
from .named_results import Plan as Plan
from .named_results import PlannedOperator as PlannedOperator
from .named_results import RmsNormGradients as RmsNormGradients
from .named_results import SwigluGradients as SwigluGradients
from .named_results import TrainingLog as TrainingLog
from .named_results import TrainingProbe as TrainingProbe
from .named_results import TrainingSnapshots as TrainingSnapshots
from .named_results import TrainingTask as TrainingTask
from .norms import layer_norm_backward as layer_norm_backward
from .norms import layer_norm_forward as layer_norm_forward
from .norms import rms_norm_backward as rms_norm_backward
from .norms import rms_norm_forward as rms_norm_forward
from .optimizers import adamw_step as adamw_step
from .runtime import active_instruction_set as active_instruction_set
from .runtime import available_memory_bytes as available_memory_bytes
from .runtime import bf16_dot_gflops as bf16_dot_gflops
from .runtime import default_num_threads as default_num_threads
from .runtime import fma_gflops as fma_gflops
from .runtime import instruction_sets as instruction_sets
from .runtime import plan as plan
from .runtime import read_gigabytes_per_second as read_gigabytes_per_second

if hasattr(_regard, "load_model"):  # built with regard::explain
    from .models import Comparison as Comparison
    from .models import Explanation as Explanation
    from .models import Model as Model
    from .models import SentenceAnalysis as SentenceAnalysis
    from .models import compare as compare
    from .models import embed as embed
    from .models import explain as explain
    from .models import lesson as lesson
    from .models import lesson_entries as lesson_entries
    from .models import load_model as load_model
    from .optimizers import clip_factor as clip_factor
    from .optimizers import global_norm as global_norm
    from .optimizers import learning_rate_at as learning_rate_at
    from .optimizers import muon_learning_rate_at as muon_learning_rate_at
    from .optimizers import muon_step as muon_step
    from .training import TrainedModel as TrainedModel
    from .training import Training as Training
    from .training import train as train
    from .training import training_tasks as training_tasks

__version__: str = vars(_regard)["__version__"]
