# SPDX-License-Identifier: Apache-2.0
"""The competitors on the same arrays and with the same number of threads, each through its attention operator.

    competitors(threads)             {name: competitor}, without those whose package is missing
    competitor.attention(workload)   (call, result): call() computes, result() is (1, heads, queries, depth);
                                     None if it has no such operator

    torch           scaled_dot_product_attention of PyTorch
    onnxruntime     the Attention operator of ONNX opset 23
    onnxruntime own com.microsoft.MultiHeadAttention on (B, L, E); causal and decoding: GroupQueryAttention, whose cache
                    is updated in place. Conversion to the layouts of these operators is not timed
    ggml            ggml_flash_attn_ext of llama.cpp, keys and values in f32
    numpy           product, softmax, product, head by head

No competitor may spin during another's turn: OMP_WAIT_POLICY=PASSIVE, and spinning is disabled in ONNX Runtime.
Read next: suite.py."""

import ctypes
import glob
import importlib
import pathlib
import sys

import numpy


def openblas():
    """The OpenBLAS in NumPy's wheel: its version, and the core whose kernels it selected."""
    [path] = glob.glob(str(pathlib.Path(numpy.__file__).parent.parent / "numpy.libs" / "*openblas*"))
    library = ctypes.CDLL(path)
    library.scipy_openblas_get_corename64_.restype = ctypes.c_char_p
    library.scipy_openblas_get_config64_.restype = ctypes.c_char_p
    return {"version": library.scipy_openblas_get_config64_().decode().split()[1],
            "core": library.scipy_openblas_get_corename64_().decode(),
            "threads": library.scipy_openblas_get_num_threads64_()}


class NumPy:
    def __init__(self, threads):
        self.version = numpy.__version__

    def attention(self, workload):
        if workload.dtype != "f32" or workload.causal or workload.window >= 0 or workload.starts is not None:
            return None
        scores = numpy.zeros((workload.queries, workload.keys), numpy.float32)
        context = workload.new_context()
        scale, group = numpy.float32(workload.depth**-0.5), workload.heads // workload.key_heads

        def call():
            for head in range(workload.heads):
                numpy.matmul(workload.query[0, head], workload.key[0, head // group].T, out=scores)
                numpy.multiply(scores, scale, out=scores)
                numpy.subtract(scores, scores.max(axis=1, keepdims=True), out=scores)
                numpy.exp(scores, out=scores)
                numpy.divide(scores, scores.sum(axis=1, keepdims=True), out=scores)
                numpy.matmul(scores, workload.value[0, head // group], out=context[0, head])

        return call, lambda: context


class Torch:
    def __init__(self, threads):
        self.torch = importlib.import_module("torch")
        self.torch.set_num_threads(threads)
        self.version = self.torch.__version__

    def attention(self, workload):
        torch, group = self.torch, workload.heads // workload.key_heads
        query, key, value = map(torch.from_numpy, (workload.query, workload.key, workload.value))
        if workload.dtype == "bf16":
            query, key, value = (x.view(torch.bfloat16) for x in (query, key, value))
        options = {"is_causal": workload.causal, "enable_gqa": group > 1}
        if workload.window >= 0:
            rows, columns = numpy.ogrid[:workload.queries, :workload.keys]
            distance = rows + workload.keys - workload.queries - columns
            mask = (distance <= workload.window) & (~numpy.bool_(workload.causal) | (distance >= 0))
            options |= {"is_causal": False, "attn_mask": torch.from_numpy(mask)}
        attention = torch.nn.functional.scaled_dot_product_attention
        last = {}

        def call():
            with torch.inference_mode():
                if workload.starts is None:
                    last["context"] = attention(query, key, value, **options)
                    return
                pairs = zip(workload.starts[:-1].tolist(), workload.starts[1:].tolist())
                last["context"] = torch.cat([attention(*(x[:, :, begin:end] for x in (query, key, value)), **options)
                                             for begin, end in pairs], dim=2)

        return call, lambda: last["context"].float().contiguous().numpy()

    def _training(self, workload, grad_context):
        """The forward pass as a call, its inputs, and the gradient of the context."""
        arrays = [self.torch.from_numpy(array) for array in (workload.query, workload.key, workload.value, grad_context)]
        if workload.dtype == "bf16":
            arrays = [array.view(self.torch.bfloat16) for array in arrays]
        *inputs, grad = arrays
        inputs = [tensor.requires_grad_() for tensor in inputs]
        attention = self.torch.nn.functional.scaled_dot_product_attention
        return lambda: attention(*inputs, is_causal=workload.causal), inputs, grad

    def backward(self, workload, grad_context):
        """The backward pass alone, after a forward pass that is not timed."""
        forward, inputs, grad = self._training(workload, grad_context)
        context = forward()
        return lambda: self.torch.autograd.grad(context, inputs, grad, retain_graph=True)

    def training(self, workload, grad_context):
        forward, inputs, grad = self._training(workload, grad_context)
        return lambda: self.torch.autograd.grad(forward(), inputs, grad)


class OnnxRuntime:
    def __init__(self, threads):
        self.runtime, self.onnx = importlib.import_module("onnxruntime"), importlib.import_module("onnx")
        self.threads = threads
        self.version = self.runtime.__version__

    def session(self, node, feeds, outputs):
        """A session of one operator with bound inputs and outputs, so that nothing is copied or allocated."""
        helper, types = self.onnx.helper, {numpy.dtype(numpy.float32): 1, numpy.dtype(numpy.int32): 6}
        graph = helper.make_graph(
            [node], "attention", [helper.make_tensor_value_info(n, types[x.dtype], x.shape) for n, x in feeds.items()],
            [helper.make_tensor_value_info(name, 1, None) for name in outputs])
        opsets = [helper.make_opsetid("", 23), helper.make_opsetid("com.microsoft", 1)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
        options = self.runtime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = self.threads, 1
        options.log_severity_level = 3
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        session = self.runtime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        binding = session.io_binding()
        value = self.runtime.OrtValue.ortvalue_from_numpy
        values = {name: value(array) for name, array in feeds.items()}
        for name, kept in values.items():
            binding.bind_ortvalue_input(name, kept)
        for name, array in outputs.items():
            kept = values[array] if isinstance(array, str) else values.setdefault(name, value(array))
            binding.bind_ortvalue_output(name, kept)
        return lambda: session.run_with_iobinding(binding), lambda name: values[name].numpy()

    def attention(self, workload):
        if workload.dtype != "f32" or workload.window >= 0 or workload.starts is not None:
            return None
        if workload.causal and workload.queries != workload.keys:
            return None
        node = self.onnx.helper.make_node("Attention", ["q", "k", "v"], ["y"], is_causal=int(workload.causal))
        call, result = self.session(node, {"q": workload.query, "k": workload.key, "v": workload.value},
                                    {"y": workload.new_context()})
        return call, lambda: result("y")


class OnnxRuntimeOwn(OnnxRuntime):
    def attention(self, workload):
        if workload.dtype != "f32" or workload.window >= 0 or workload.starts is not None:
            return None
        flat = lambda x: numpy.ascontiguousarray(x.transpose(0, 2, 1, 3).reshape(1, x.shape[2], -1))
        query, key, value = map(flat, (workload.query, workload.key, workload.value))
        output = {"y": numpy.zeros_like(query)}
        make = self.onnx.helper.make_node
        counts = {"l": numpy.array([workload.keys - 1], numpy.int32), "t": numpy.array(workload.keys, numpy.int32)}
        heads = {"num_heads": workload.heads, "kv_num_heads": workload.key_heads, "domain": "com.microsoft"}
        if workload.queries == 1:
            node = make("GroupQueryAttention", ["q", "k", "v", "pk", "pv", "l", "t"], ["y", "ok", "ov"], **heads)
            feeds = {"q": query, "k": key[:, -1:].copy(), "v": value[:, -1:].copy(), "pk": workload.key,
                     "pv": workload.value, **counts}
            call, result = self.session(node, feeds, {**output, "ok": "pk", "ov": "pv"})
        elif workload.causal and workload.queries == workload.keys:
            node = make("GroupQueryAttention", ["q", "k", "v", "", "", "l", "t"], ["y", "ok", "ov"], **heads)
            cache = {"ok": numpy.zeros_like(workload.key), "ov": numpy.zeros_like(workload.value)}
            call, result = self.session(node, {"q": query, "k": key, "v": value, **counts}, {**output, **cache})
        elif not workload.causal and workload.heads == workload.key_heads:
            node = make("MultiHeadAttention", ["q", "k", "v"], ["y"], num_heads=workload.heads, domain="com.microsoft")
            call, result = self.session(node, {"q": query, "k": key, "v": value}, output)
        else:
            return None
        return call, lambda: result("y").reshape(1, workload.queries, workload.heads, -1).transpose(0, 2, 1, 3)


class Ggml:
    def __init__(self, threads):
        folder = pathlib.Path(sys.prefix) / "ggml"
        self.library = ctypes.CDLL(str(folder / "libggml_attention.so"))
        self.library.ggml_attention_new.restype = ctypes.c_void_p
        self.library.ggml_attention_compute.argtypes = [ctypes.c_void_p]
        self.version = (folder / "version").read_text(encoding="utf-8").strip()
        self.threads = threads

    def attention(self, workload):
        if workload.dtype != "f32" or workload.window >= 0 or workload.starts is not None:
            return None
        output = numpy.zeros((1, workload.queries, workload.heads, workload.depth), numpy.float32)
        extents = numpy.array([workload.heads, workload.key_heads, workload.queries, workload.keys, workload.depth],
                              numpy.int64)
        arrays = (workload.query, workload.key, workload.value, output, extents)
        graph = self.library.ggml_attention_new(*(ctypes.c_void_p(x.ctypes.data) for x in arrays),
                                                int(workload.causal), self.threads)
        return (lambda: self.library.ggml_attention_compute(graph)), lambda: output.transpose(0, 2, 1, 3)


KINDS = {"torch": Torch, "onnxruntime": OnnxRuntime, "onnxruntime own": OnnxRuntimeOwn, "ggml": Ggml, "numpy": NumPy}


def competitors(threads):
    """All competitors that are installed; the others are reported on standard error."""
    found = {}
    for name, kind in KINDS.items():
        try:
            found[name] = kind(threads)
        except (ImportError, OSError) as error:
            print(f"compare.py: skipping {name}: {error}", file=sys.stderr)
    return found
