# SPDX-License-Identifier: Apache-2.0
"""Training of a small decoder, and observation of its attention heads during training: train, Training, TrainedModel.

    training = regard.train("induction")      task, text and settings as in the command `regard train`
    training                                  a summary; in a notebook, the page with every head at every snapshot
    training.log.loss                         the loss curve, as a NumPy array
    training.snapshots.weights[-1, 1, 0]      the weights of layer 1, head 0 at the last snapshot
    training.events                           the moments at which heads formed, in words
    training.evaluate(ablate=(1, 0)).loss     the loss without that head
    training.model("^ d k b q d")             logits; training.model.parameters, training.model.generate(…)

These functions are absent if the package was built without regard::explain. Read next: results.py,
docs/guide/training.md.
"""

from __future__ import annotations

import functools
import os
import sys
import warnings

from . import _regard
from .named_results import Evaluation, HeadEvent, TrainingLog, TrainingProbe, TrainingSnapshots, TrainingTask

TYPE_CHECKING = False  # avoids importing typing at run time
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Literal, overload

    import numpy
    import numpy.typing

    from .optimizers import Schedule

    Tokens = str | Sequence[int] | numpy.typing.NDArray[numpy.integer[Any]]

_EVALUATED = 512              # number of held-out examples that are evaluated after a run
_EVALUATED_AFTER_SIGNAL = 32  # the same after an interrupted run
_SECONDS = 0.1                # interval between two updates of the progress line


def training_tasks() -> list[TrainingTask]:
    """Return the tasks that :func:`train` accepts.

    Returns
    -------
    list of TrainingTask
        Each entry has the attributes name, shows (what the task demonstrates), pattern, expected (time and score)
        and parameters (number of parameters).

    Examples
    --------
    >>> import regard
    >>> next(task.pattern for task in regard.training_tasks() if task.name == "induction")
    'the token after the earlier copy'
    """
    return [TrainingTask(task) for task in _regard.training_tasks()]


def train(
    task: str | None = None, *, text: str | os.PathLike[str] | None = None, vocabulary: Literal["characters"] | int | None = None,
    shuffled: bool = False, run: str | os.PathLike[str] | None = None, resume: bool = False, checkpoint_every: int | None = None,
    snapshots: int = 60, progress: bool = False, num_threads: int = 0,
    steps: int | None = None, batch: int | None = None, micro_batch: int | None = None, length: int | None = None,
    seed: int | None = None, layers: int | None = None, heads: int | None = None, kv_heads: int | None = None,
    width: int | None = None, head_size: int | None = None, feed_forward_width: int | None = None,
    feed_forward: Literal["none", "relu", "gelu", "gelu_tanh", "swiglu"] | None = None,
    norm: Literal["layer", "rms"] | None = None, positions: Literal["learned", "rotary", "none"] | None = None,
    optimizer: Literal["adamw", "muon"] | None = None, learning_rate: float | None = None,
    muon_learning_rate: float | None = None, min_learning_rate: float | None = None, warmup: int | None = None,
    schedule: Schedule | None = None, weight_decay: float | None = None, beta1: float | None = None,
    beta2: float | None = None, clip: float | None = None, dropout: float | None = None,
    precision: Literal["float32", "float64", "bf16_products"] | None = None, untied: bool = False, biases: bool = False,
    recompute: bool = False,
) -> Training:
    """Train a small decoder on a task or a text, and observe every head at a number of snapshots.

    The settings are those of the command ``regard train``. The value of a setting that is None is taken from the recipe
    of the task or the text. The settings, the seed, and the task or text determine every bit of the result.
    num_threads, micro_batch and recompute do not affect it.

    Parameters
    ----------
    task : str, optional
        The name of a task; :func:`training_tasks` lists them.
    text : str or os.PathLike, optional
        A text, or the path of a UTF-8 file as a ``pathlib.Path``. Either task or text is required.
    vocabulary : 'characters' or int, optional
        The tokens of a text: its characters (the default), or at most this number of byte-pair tokens learned from it.
    shuffled : bool, default False
        Whether to replace the tokens to predict with random tokens, so that nothing can be learned.
    run : str or os.PathLike, optional
        The folder for checkpoints, as for ``regard train --run``. It must not contain checkpoints unless resume is
        True.
    resume : bool, default False
        Whether to resume the run in that folder. The result is bit-identical to that of an uninterrupted run.
    checkpoint_every : int, optional
        The number of steps between checkpoints. The default is a tenth of all steps.
    snapshots : int, default 60
        The maximum number of snapshots.
    progress : bool, default False
        Whether to print a line of progress to the standard error stream.
    num_threads : int, default 0
        The maximum number of threads; 0 means :func:`default_num_threads`.
    steps, batch, micro_batch : int, optional
        The number of steps, the number of sequences per step, and the number of sequences computed at a time.
    length : int, optional
        The number of tokens per sequence, for a text. The length of a task is fixed.
    seed : int, optional
        The seed of parameters, batches and dropout.
    layers, heads, kv_heads, width, head_size, feed_forward_width : int, optional
        The extents of the model; width is the width of the residual stream.
    feed_forward, norm, positions : str, optional
        The kind of feed-forward layer, of normalization and of position encoding.
    optimizer : {'adamw', 'muon'}, optional
        The optimizer. 'muon' uses AdamW for all parameters except the matrices of the layers.
    learning_rate, muon_learning_rate, min_learning_rate : float, optional
        The peak learning rates of AdamW and Muon, and the final learning rate of AdamW. The final learning rate of
        Muon is scaled in proportion.
    warmup : int, optional
        The number of steps over which the learning rate rises linearly to its peak.
    schedule : {'constant', 'cosine', 'linear', 'warmup_stable_decay'}, optional
        The schedule of the learning rate after the warm-up, as for :func:`learning_rate_at`.
    weight_decay, beta1, beta2, clip, dropout : float, optional
        The weight decay of matrices and embedding tables, the decay rates of the moments, the maximum global L2 norm of
        the gradient, and the dropout probability.
    precision : {'float32', 'float64', 'bf16_products'}, optional
        The precision of the arithmetic.
    untied, biases, recompute : bool, default False
        Whether the output has a separate matrix, whether linear layers and layer norms have biases, and whether
        activations are recomputed in the backward pass to save memory.

    Returns
    -------
    Training
        The log, the snapshots, the events and the model. Ctrl-C, or an interrupt in a notebook, ends the run after the
        current step: a warning is issued, and the result so far is returned.

    Raises
    ------
    ValueError
        If a setting is invalid. The message states the name of the setting, its value and the expected value.
    RuntimeError
        If the loss is not finite, or a file cannot be read or written.

    Examples
    --------
    >>> import regard
    >>> training = regard.train("copy", steps=4, layers=1, width=16, batch=4)
    >>> training.log.loss.shape, training.snapshots.step
    ((4,), array([0, 1, 2, 3, 4]))
    >>> training.model.generate("^ a b =", tokens=3, temperature=0).count(" ")
    2
    """
    given = dict(locals())
    options = {name: value for name, value in given.items() if value is not None and name not in _NOT_SETTINGS}
    options = {name: value for name, value in options.items() if value is not False}
    folder = "" if run is None else os.fspath(run)
    if resume and not folder:
        raise ValueError("train: resume is True; expected the folder of a run as run=")
    if checkpoint_every is not None and (not folder or checkpoint_every < 1):
        raise ValueError(f"train: checkpoint_every is {checkpoint_every}; expected at least 1, and the folder of a run as run=")
    if isinstance(text, os.PathLike):
        options["source"] = os.fspath(text)
        with open(text, encoding="utf-8", newline="") as file:
            options["text"] = file.read()
    native = _regard.Training(_command(given), **options)
    if resume:
        warning = native.resume(folder)
        if warning:
            warnings.warn(f"train: {warning}", RuntimeWarning, stacklevel=2)
    elif folder and os.path.isdir(folder) and any(name.startswith("step-") for name in os.listdir(folder)):
        raise ValueError(f"train: run is {folder!r}, which already has checkpoints; expected another folder, or resume=True")
    interrupted = _run(native, num_threads, folder, checkpoint_every or max(1, native.steps // 10), progress)
    native.finish()
    if folder:
        native.save(folder)
    training = Training(native, _EVALUATED_AFTER_SIGNAL if interrupted else _EVALUATED)
    if interrupted:
        more = "the run is saved; continue it with resume=True" if folder else "only a run with run=folder can be continued"
        warnings.warn(f"train: interrupted after step {native.step} of {native.steps}; {more}", RuntimeWarning, stacklevel=2)
    return training


_NOT_SETTINGS = frozenset(("run", "resume", "checkpoint_every", "progress", "num_threads"))


def _command(given: dict[str, Any]) -> str:
    """The call in the form stored in the record: only arguments that differ from their defaults."""
    defaults = train.__kwdefaults__ or {}
    words = [] if given["task"] is None else [repr(given["task"])]
    for name, default in defaults.items():
        value = given[name]
        if value is default or value == default:
            continue
        shown = repr(value) if not isinstance(value, str) or len(value) <= 40 else f"{value[:40]!r} …"
        words.append(f"{name}={shown}")
    return f"regard.train({', '.join(words)})"


def _run(native: _regard.Training, num_threads: int, folder: str, checkpoint_every: int, progress: bool) -> bool:
    """Perform all steps, and return whether Ctrl-C ended the run."""
    try:
        while not native.advance(_SECONDS if progress else 3600.0, num_threads, folder, checkpoint_every):
            if progress:
                print(f"\rtrain  {_progress(native)}", end="", file=sys.stderr, flush=True)
    except KeyboardInterrupt:
        return True
    finally:
        if progress:
            print(f"\rtrain  {_progress(native)}", file=sys.stderr, flush=True)
    return False


def _progress(native: _regard.Training) -> str:
    loss, rate = native.last()
    return f"step {native.step:,} of {native.steps:,}  loss {loss:.3f}  {rate:,.0f} tokens/s  "


class Training:
    """A run of :func:`train`, with its log, its snapshots, its events and the model."""

    def __init__(self, native: _regard.Training, evaluated: int = _EVALUATED) -> None:
        self._native = native
        self.held_out = self.evaluate(evaluated)
        self.model = TrainedModel(native)

    held_out: Evaluation
    """The evaluation of the model on examples that it was not trained on: loss, num_targets, correct_targets,
    num_sequences and correct_sequences."""

    model: TrainedModel
    """The model."""

    @functools.cached_property
    def log(self) -> TrainingLog:
        """The training curve, with one array per column.

        The columns are step, loss, held_out_loss (NaN where it was not measured), gradient_norm (before clipping),
        learning_rate and tokens_per_second (NaN for steps loaded from a checkpoint).
        """
        return TrainingLog(self._native.log())

    @functools.cached_property
    def snapshots(self) -> TrainingSnapshots:
        """The attention of every head at each snapshot, for S snapshots, N layers, H heads and L tokens of the probe.

        - step and loss, (S,): the number of steps before the snapshot, and the loss on the probe
        - weights, (S, N, H, L, L): the weights on the first sequence of the probe
        - pattern, previous, sink and entropy, (S, N, H): the mean weight on the expected keys, on the previous token
          and on the first token, and the entropy relative to that of uniform weights
        - ablation, (S, N, H): the increase in the loss on the probe when the head is ablated
        - grad_weights and grad_scores, (S, N, H, query + 1): the gradients with respect to the weights and the scores
          of row probe.query
        """
        return TrainingSnapshots(self._native.snapshots())

    @functools.cached_property
    def probe(self) -> TrainingProbe:
        """The sequence on which heads are observed.

        The entries are tokens and targets (None for a target that is not counted), wanted (the expected keys for each
        row), query (the row whose gradient is stored), and uniform_pattern, uniform_previous and uniform_sink (the
        scores of uniform weights).
        """
        return TrainingProbe(self._native.probe())

    @functools.cached_property
    def events(self) -> list[HeadEvent]:
        """The moments at which heads formed, in words. A head counts as formed only if score and ablation agree.

        Each event has the attributes text, kind ('pattern' or 'previous_token'), layer, head, step, score, uniform,
        loss_fall and ablation.
        """
        return [HeadEvent(event) for event in self._native.events()]

    @property
    def findings(self) -> list[str]:
        """The findings of the run, in sentences."""
        return self._native.findings()

    @property
    def settings(self) -> list[str]:
        """The settings in a few lines."""
        return self._native.summary()

    @property
    def done(self) -> bool:
        """Whether all steps are done; False if the run was interrupted."""
        return self._native.step == self._native.steps

    @property
    def seconds(self) -> float:
        """The time spent in steps, in seconds, excluding observation."""
        return self._native.seconds

    def evaluate(
        self, count: int = 512, *, split: Literal["held_out", "train"] = "held_out", ablate: tuple[int, int] | None = None,
    ) -> Evaluation:
        """Evaluate the model, by default on examples that it was not trained on.

        Parameters
        ----------
        count : int, default 512
            The number of examples.
        split : {'held_out', 'train'}, default 'held_out'
            Whether to use held-out or training examples.
        ablate : tuple of (layer, head), optional
            A head whose context is replaced by zeros.

        Returns
        -------
        Evaluation
            The entries loss, num_targets, correct_targets, num_sequences and correct_sequences (the number of sequences
            without an error).

        Raises
        ------
        ValueError
            If an argument is out of range.
        """
        return Evaluation(self._native.evaluate(count, split, ablate))

    def save(self, folder: str | os.PathLike[str]) -> str:
        """Save a checkpoint for :func:`load_model`, ``regard generate`` and resume=True.

        Parameters
        ----------
        folder : str or os.PathLike
            The folder of the run. It is created if it is missing.

        Returns
        -------
        str
            The path of the checkpoint, which is a folder within the run's folder.

        Raises
        ------
        RuntimeError
            If a file cannot be written, or the folder contains a checkpoint of a later step.
        """
        return self._native.save(folder)

    def text(self, width: int = 80, color: bool = False) -> str:
        """Return a summary of the run as text: the findings, the loss, the best head at some snapshots, and the events.

        Parameters
        ----------
        width : int, default 80
            The width of the text in columns.
        color : bool, default False
            Whether to color the text with terminal escape codes.

        Returns
        -------
        str
            The text, with at most 30 lines if width is at least 60.
        """
        return self._native.text(width, color)

    def json(self) -> str:
        """Return the record of the run as JSON, schema regard/1.

        Returns
        -------
        str
        """
        return self._native.json()

    def html(self) -> str:
        """Return the page of the run, with every head at every snapshot, as ``regard train --watch`` writes it.

        Returns
        -------
        str
        """
        return self._native.html()

    def svg(self) -> str:
        """Return the loss and the scores of all heads as an SVG image.

        Returns
        -------
        str
        """
        return self._native.svg()

    def __repr__(self) -> str:
        return self.text()

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        from .results import training_in_notebook

        return training_in_notebook(self)

    def _repr_html_(self) -> str:
        return self._repr_mimebundle_()["text/html"]


class TrainedModel:
    """The model of a run after the last step."""

    def __init__(self, native: _regard.Training) -> None:
        self._native = native

    @functools.cached_property
    def parameters(self) -> dict[str, numpy.ndarray[Any, numpy.dtype[Any]]]:
        """Copies of all parameters by name, such as "model.layers.0.self_attn.q_proj.weight". A matrix is (out, in)."""
        return self._native.parameters()

    def encode(self, text: str) -> list[int]:
        """Split a text into tokens. For a task, tokens are separated by spaces.

        Parameters
        ----------
        text : str
            The text.

        Returns
        -------
        list of int
            Token ids.

        Raises
        ------
        ValueError
            If the text contains a character or a word that is not in the vocabulary.
        """
        return self._native.encode(text)

    def decode(self, ids: Sequence[int]) -> str:
        """Convert token ids to text.

        Parameters
        ----------
        ids : sequence of int
            Token ids.

        Returns
        -------
        str
        """
        return self._native.decode(list(map(int, ids)))

    def __call__(
        self, tokens: Tokens, *, ablate: tuple[int, int] | None = None,
    ) -> numpy.ndarray[Any, numpy.dtype[Any]]:
        """Compute the logits for the token that follows each token.

        Parameters
        ----------
        tokens : str, or sequence or array of int, shape (L,) or (B, L)
            A text, or token ids.
        ablate : tuple of (layer, head), optional
            A head whose context is replaced by zeros.

        Returns
        -------
        numpy.ndarray, shape (L, V) or (B, L, V)
            The logits: float32, or float64 if the model was trained in float64.
        """
        import numpy

        ids = numpy.asarray(self.encode(tokens) if isinstance(tokens, str) else tokens)
        if ids.ndim not in (1, 2) or ids.dtype.kind not in "iu" and ids.size:
            raise ValueError(f"model: tokens has {ids.ndim} axes of type {ids.dtype}; expected 1 or 2 axes of integers")
        logits = self._native.logits(numpy.ascontiguousarray(numpy.atleast_2d(ids), dtype="int64"), ablate)
        return logits[0] if ids.ndim == 1 else logits  # type: ignore[no-any-return]

    if TYPE_CHECKING:
        @overload
        def generate(self, prompt: str, tokens: int = 256, *, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0,
                     seed: int = 0) -> str: ...
        @overload
        def generate(self, prompt: Sequence[int], tokens: int = 256, *, temperature: float = 1.0, top_k: int = 0,
                     top_p: float = 1.0, seed: int = 0) -> list[int]: ...

    def generate(
        self, prompt: str | Sequence[int], tokens: int = 256, *, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0,
        seed: int = 0,
    ) -> str | list[int]:
        """Continue a text, as ``regard generate`` does.

        Parameters
        ----------
        prompt : str or sequence of int
            The beginning of the text, as a string or token ids; at least one token.
        tokens : int, default 256
            The maximum number of tokens to generate. Generation also stops at the model's context length.
        temperature : float, default 1.0
            The divisor of the logits. With 0, the most probable token is always selected (greedy decoding).
        top_k : int, default 0
            Sampling is restricted to this number of most probable tokens; 0 means no restriction.
        top_p : float, default 1.0
            Sampling is restricted to the smallest set of most probable tokens whose total probability is at least this
            value.
        seed : int, default 0
            The random seed.

        Returns
        -------
        str or list of int
            The continuation, of the same type as prompt.

        Raises
        ------
        ValueError
            If the prompt is empty or too long, or if an argument is out of range.
        """
        ids = self._native.encode(prompt) if isinstance(prompt, str) else list(map(int, prompt))
        found = self._native.generate(ids, tokens, temperature, top_k, top_p, seed)
        return self._native.decode(found) if isinstance(prompt, str) else found

    def __repr__(self) -> str:
        elements = sum(array.size for array in self.parameters.values())
        return f"TrainedModel({self._native.summary()[0]}; {elements:,} parameters)"
