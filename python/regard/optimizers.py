# SPDX-License-Identifier: Apache-2.0
"""Optimizers on arrays that are updated in place, and the learning rate as a function of the step.

    gradients ── global_norm, clip_factor ──▶ gradient_scale ─┐
    step ─────── learning_rate_at ──────────▶ learning_rate ──┴─▶ adamw_step or muon_step ──▶ parameters, moments

Only the moments are stored between steps; they are 0 before the first step. If the package was built without
regard::explain, only adamw_step is available. Read next: training.py.
"""

from __future__ import annotations

from . import _regard

TYPE_CHECKING = False  # avoids importing typing at run time
if TYPE_CHECKING:
    from typing import Literal

    from .calls import AnyArray

    Schedule = Literal["constant", "cosine", "linear", "warmup_stable_decay"]


def adamw_step(
    parameters: AnyArray, gradients: AnyArray, first_moment: AnyArray, second_moment: AnyArray, *,
    learning_rate: float = 0.001, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-08,
    weight_decay: float = 0.01, gradient_scale: float = 1.0, step: int, num_threads: int = 0,
) -> None:
    """Perform a step of AdamW in place.

    Parameters
    ----------
    parameters : array
        The parameters: float32 or float64, of any shape, contiguous. They are updated.
    gradients : array
        The gradients, of the same shape and type.
    first_moment, second_moment : array
        The moments, of the same shape and type; zeros before the first step. They are updated.
    learning_rate : float, default 0.001
        The learning rate of this step.
    beta1, beta2 : float, default 0.9 and 0.999
        The decay rates of the moments.
    epsilon : float, default 1e-08
        The value added to the square root of the second moment.
    weight_decay : float, default 0.01
        The decoupled weight decay: a step subtracts ``learning_rate · weight_decay · parameters``.
    gradient_scale : float, default 1.0
        The factor applied to the gradients, for example the result of :func:`clip_factor`.
    step : int
        The step number for the bias correction, starting at 1.
    num_threads : int, default 0
        The maximum number of threads; 0 means :func:`default_num_threads`.

    Raises
    ------
    ValueError
        If an argument is invalid. The message states the name of the argument, its value and the expected value. The
        error is raised before any work is done.

    Examples
    --------
    >>> import numpy as np, regard
    >>> p, m, v = np.ones(3), np.zeros(3), np.zeros(3)
    >>> regard.adamw_step(p, np.array([1.0, 0.0, -2.0]), m, v, step=1, learning_rate=0.1, weight_decay=0.0)
    >>> p.round(6)
    array([0.9, 1. , 1.1])
    """
    _regard.adamw_step(
        parameters, gradients, first_moment, second_moment, learning_rate=learning_rate, beta1=beta1, beta2=beta2,
        epsilon=epsilon, weight_decay=weight_decay, gradient_scale=gradient_scale, step=step, num_threads=num_threads)


def muon_step(
    matrix: AnyArray, gradient: AnyArray, first_moment: AnyArray, *, learning_rate: float = 0.02, momentum: float = 0.95,
    nesterov: bool = True, weight_decay: float = 0.0, gradient_scale: float = 1.0, iterations: int = 5,
    num_threads: int = 0,
) -> None:
    """Perform a step of Muon in place: an update with the momentum, whose singular values are first set to about 1.

    Parameters
    ----------
    matrix : array, shape (R, C)
        The matrix: float32 or float64, contiguous, with one row per output, as in PyTorch's ``nn.Linear``. It is
        updated.
    gradient : array, shape (R, C)
        The gradient, of the same type as matrix.
    first_moment : array, shape (R, C)
        The momentum; zeros before the first step. It is updated.
    learning_rate : float, default 0.02
        The learning rate of this step.
    momentum : float, default 0.95
        The decay rate of first_moment.
    nesterov : bool, default True
        Whether to use Nesterov momentum.
    weight_decay : float, default 0.0
        The decoupled weight decay: a step subtracts ``learning_rate · weight_decay · matrix``.
    gradient_scale : float, default 1.0
        The factor applied to the gradient, for example the result of :func:`clip_factor`.
    iterations : int, default 5
        The number of Newton–Schulz iterations, 1 to 100.
    num_threads : int, default 0
        The maximum number of threads; 0 means :func:`default_num_threads`.

    Raises
    ------
    ValueError
        If an argument is invalid. The message states the name of the argument, its value and the expected value. The
        error is raised before any work is done.

    Examples
    --------
    >>> import numpy as np, regard
    >>> matrix, moment = np.zeros((2, 2)), np.zeros((2, 2))
    >>> regard.muon_step(matrix, np.diag([1.0, 100.0]), moment, learning_rate=1.0, iterations=30)
    >>> bool(np.all((np.linalg.svd(matrix)[1] > 0.6) & (np.linalg.svd(matrix)[1] < 1.3)))
    True
    """
    _regard.muon_step(
        matrix, gradient, first_moment, learning_rate=learning_rate, momentum=momentum, nesterov=nesterov,
        weight_decay=weight_decay, gradient_scale=gradient_scale, iterations=iterations, num_threads=num_threads)


def global_norm(values: AnyArray, *, num_threads: int = 0) -> float:
    """Return the L2 norm of an array, computed in double; it is bit-identical for any number of threads.

    Parameters
    ----------
    values : array
        The elements, for example all gradients: float32 or float64, of any shape, contiguous.
    num_threads : int, default 0
        The maximum number of threads; 0 means :func:`default_num_threads`.

    Returns
    -------
    float
        The norm, which is not finite if an element is not finite.

    Examples
    --------
    >>> import numpy as np, regard
    >>> regard.global_norm(np.array([[3.0, 4.0]]))
    5.0
    """
    return _regard.global_norm(values, num_threads=num_threads)


def clip_factor(norm: float, max_norm: float) -> float:
    """Return the factor that limits the norm of a gradient, as PyTorch's ``clip_grad_norm_`` does.

    Parameters
    ----------
    norm : float
        The norm, as returned by :func:`global_norm`.
    max_norm : float
        The limit; 0 means no limit.

    Returns
    -------
    float
        ``min(1, max_norm / (norm + 1e-6))``.

    Examples
    --------
    >>> import regard
    >>> round(regard.clip_factor(4.0, 1.0), 4), regard.clip_factor(0.5, 1.0)
    (0.25, 1.0)
    """
    return _regard.clip_factor(norm, max_norm)


def learning_rate_at(
    step: int, *, steps: int, learning_rate: float = 0.001, min_learning_rate: float = 0.0001, warmup: int = 0,
    schedule: Schedule = "cosine",
) -> float:
    """Return the learning rate of AdamW at a step of a schedule.

    Parameters
    ----------
    step : int
        Zero-based step index.
    steps : int
        The number of steps of the run.
    learning_rate : float, default 0.001
        The peak learning rate.
    min_learning_rate : float, default 0.0001
        The final learning rate.
    warmup : int, default 0
        The number of steps over which the learning rate rises linearly from 0.
    schedule : {'constant', 'cosine', 'linear', 'warmup_stable_decay'}, default 'cosine'
        The schedule after the warm-up.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If an argument is out of range.

    Examples
    --------
    >>> import regard
    >>> [round(regard.learning_rate_at(step, steps=100, warmup=9), 6) for step in (0, 9, 100)]
    [0.0001, 0.001, 0.0001]
    """
    return _regard.learning_rate_at(
        step, steps=steps, learning_rate=learning_rate, min_learning_rate=min_learning_rate, warmup=warmup,
        schedule=schedule)


def muon_learning_rate_at(
    step: int, *, steps: int, muon_learning_rate: float = 0.02, learning_rate: float = 0.001,
    min_learning_rate: float = 0.0001, warmup: int = 0, schedule: Schedule = "cosine",
) -> float:
    """Return the learning rate of Muon at a step of a schedule, proportional to that of AdamW.

    Parameters
    ----------
    step, steps : int
        As for :func:`learning_rate_at`.
    muon_learning_rate : float, default 0.02
        The peak learning rate of Muon.
    learning_rate, min_learning_rate, warmup, schedule
        As for :func:`learning_rate_at`.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If an argument is out of range.

    Examples
    --------
    >>> import regard
    >>> round(regard.muon_learning_rate_at(100, steps=100), 6)
    0.002
    """
    return _regard.muon_learning_rate_at(
        step, steps=steps, muon_learning_rate=muon_learning_rate, learning_rate=learning_rate,
        min_learning_rate=min_learning_rate, warmup=warmup, schedule=schedule)
