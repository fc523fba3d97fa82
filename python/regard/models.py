# SPDX-License-Identifier: Apache-2.0
"""Models, explanations and lessons: load_model, embed, explain, compare, lesson, lesson_entries.

    model = regard.load_model(folder)
    regard.explain("he sat on the bank", model=model, query="bank")      a SentenceAnalysis
    regard.explain({"tokens": […], "Q": [[…], …], …})                    an Explanation
    regard.compare(model, "bank", ["he sat …", "she put …"])             a Comparison

Each result has the methods text(), json() and html(), and is displayed as a table in a notebook. These functions are
absent if the package was built without regard::explain. Read next: results.py, docs/guide/sentence.md.
"""

from __future__ import annotations

from . import _regard

TYPE_CHECKING = False  # avoids importing typing at run time
if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence
    from typing import Any, Literal, overload

    import numpy


def _texts(operator: str, name: str, texts: Sequence[str]) -> list[str]:
    """A list of texts. A single str is rejected, although it is also a sequence of str."""
    if isinstance(texts, str):
        raise TypeError(f"{operator}: {name} is of type str; expected a sequence of str, such as [{texts[:20]!r}]")
    return list(texts)


class Model:
    """An encoder of the BERT family, or a decoder trained with Regard, as returned by :func:`load_model`."""

    __slots__ = ("__weakref__", "_model")
    _model: _regard.Model

    def __init__(self, model: _regard.Model) -> None:
        self._model = model

    @property
    def num_layers(self) -> int:
        """The number of layers."""
        return self._model.num_layers

    @property
    def num_heads(self) -> int:
        """The number of attention heads per layer."""
        return self._model.num_heads

    @property
    def width(self) -> int:
        """The number of elements in the vector of a token."""
        return self._model.width

    @property
    def max_positions(self) -> int:
        """The maximum number of tokens in a text."""
        return self._model.max_positions

    @property
    def folder(self) -> str:
        """The folder that the model was read from."""
        return self._model.folder

    def tokens(self, text: str) -> list[str]:
        """Split a text into the tokens that the model processes, including [CLS] and [SEP] for an encoder.

        Parameters
        ----------
        text : str
            The text.

        Returns
        -------
        list of str

        Raises
        ------
        ValueError
            If the text has more than max_positions tokens.
        """
        return self._model.tokens(text)

    def __repr__(self) -> str:
        return f"Model({self.folder!r}, {self.num_layers} layers, {self.num_heads} heads, width {self.width})"


class _Shown:
    """A result with a notebook representation, which results.py computes."""

    __slots__ = ("__weakref__", "_result")

    def __init__(self, result: Any) -> None:
        self._result = result

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        from .results import in_notebook

        return in_notebook(self)

    def _repr_html_(self) -> str:
        return self._repr_mimebundle_()["text/html"]

    def __repr__(self) -> str:
        return repr(self._result)


class Explanation(_Shown):
    """The steps of an attention computation, as returned by :func:`explain` and :func:`lesson`."""

    __slots__ = ()

    def text(self, width: int = 80, color: bool = False, full: bool = False, step: str = "") -> str:
        """Return the steps as text.

        Parameters
        ----------
        width : int, default 80
            The width of the text in columns.
        color : bool, default False
            Whether to color the text with terminal escape codes.
        full : bool, default False
            Whether to include all values.
        step : str, default ''
            Name or number of the only step to include; '' includes all steps.

        Returns
        -------
        str
        """
        return self._result.text(width, color, full, step)  # type: ignore[no-any-return]

    def json(self, step: str = "") -> str:
        """Return the steps as JSON, schema regard/1.

        Parameters
        ----------
        step : str, default ''
            Name or number of the only step to include; '' includes all steps.

        Returns
        -------
        str
        """
        return self._result.json(step)  # type: ignore[no-any-return]

    def html(self) -> str:
        """Return the steps as one self-contained HTML page.

        Returns
        -------
        str
        """
        return self._result.html()  # type: ignore[no-any-return]


class SentenceAnalysis(_Shown):
    """The attention of one word in a sentence that a model has processed, as returned by :func:`explain`."""

    __slots__ = ()

    def text(self, width: int = 80, color: bool = False) -> str:
        """Return the analysis as text.

        Parameters
        ----------
        width : int, default 80
            The width of the text in columns.
        color : bool, default False
            Whether to color the text with terminal escape codes.

        Returns
        -------
        str
        """
        return self._result.text(width, color)  # type: ignore[no-any-return]

    def json(self) -> str:
        """Return the analysis as JSON, schema regard/1.

        Returns
        -------
        str
        """
        return self._result.json()  # type: ignore[no-any-return]

    def html(self) -> str:
        """Return the analysis as one self-contained HTML page with every head of every layer.

        Returns
        -------
        str
        """
        return self._result.html()  # type: ignore[no-any-return]


class Comparison(_Shown):
    """A comparison of one word in several sentences, as returned by :func:`compare`."""

    __slots__ = ()

    def text(self, width: int = 80, color: bool = False, full: bool = False) -> str:
        """Return the comparison as text.

        Parameters
        ----------
        width : int, default 80
            The width of the text in columns.
        color : bool, default False
            Whether to color the text with terminal escape codes.
        full : bool, default False
            Whether to include all pairs, controls and heads.

        Returns
        -------
        str
        """
        return self._result.text(width, color, full)  # type: ignore[no-any-return]

    def json(self) -> str:
        """Return the comparison as JSON, schema regard/1.

        Returns
        -------
        str
        """
        return self._result.json()  # type: ignore[no-any-return]

    def html(self) -> str:
        """Return the comparison as one self-contained HTML page.

        Returns
        -------
        str
        """
        return self._result.html()  # type: ignore[no-any-return]

    def findings(self) -> list[str]:
        """Return the findings of the comparison, in sentences.

        Returns
        -------
        list of str
        """
        return self._result.findings()  # type: ignore[no-any-return]


def _native(operator: str, model: Model) -> _regard.Model:
    if not isinstance(model, Model):
        raise TypeError(f"{operator}: model is of type {type(model).__name__}; expected a Model, as returned by load_model")
    return model._model


def load_model(folder: str | os.PathLike[str], map: bool = False) -> Model:
    """Load a model from a folder in the Hugging Face layout, with config.json, tokenizer.json and model.safetensors.

    If the folder is that of a training run, the newest checkpoint of the run is loaded. Such a checkpoint is a decoder;
    :func:`explain` accepts decoders as well as encoders.

    Parameters
    ----------
    folder : str or os.PathLike
        The path of the folder.
    map : bool, default False
        Whether to map the parameters into memory instead of reading them.

    Returns
    -------
    Model

    Raises
    ------
    RuntimeError
        If a file cannot be read or is invalid; the message states its path.
    """
    return Model(_regard.load_model(folder, map))


if TYPE_CHECKING:
    @overload
    def explain(
        input: str, model: Model, query: str | None = None, layer: int | None = None, head: int | None = None,
        hide: Sequence[str] = (), truncate: bool = False, full: bool = False,
    ) -> SentenceAnalysis: ...
    @overload
    def explain(input: str | Mapping[str, Any], model: None = None, query: str | None = None) -> Explanation: ...


def explain(
    input: str | Mapping[str, Any], model: Model | None = None, query: str | None = None, layer: int | None = None,
    head: int | None = None, hide: Sequence[str] = (), truncate: bool = False, full: bool = False,
) -> SentenceAnalysis | Explanation:
    """Explain attention step by step, for a sentence processed by a model or for given matrices.

    Parameters
    ----------
    input : str or dict
        With a model, a sentence. Otherwise, matrices and settings (docs/guide/own-matrices.md), as a dict or as JSON.
    model : Model, optional
        The model, as returned by :func:`load_model`.
    query : str, optional
        The word whose attention is shown: ``'bank'``, ``'bank#1'`` for its second occurrence, or ``'@4'`` for the word
        at index 4. With a model, the default is the most informative word.
    layer, head : int, optional
        The layer and the head to show; only with a model. Give both or neither. The default is the most informative
        head.
    hide : sequence of str, default ()
        Words to hide, so that no token attends to them in any layer; only with a model.
    truncate : bool, default False
        Whether to truncate a sentence that is too long, instead of rejecting it; only with a model.
    full : bool, default False
        Whether to include every step of the computation of the displayed attention weight; only with a model.

    Returns
    -------
    SentenceAnalysis or Explanation
        With a model, a SentenceAnalysis; otherwise, an Explanation. Both have the methods text(), json() and html().

    Raises
    ------
    ValueError
        If the input cannot be explained.
    RuntimeError
        If the JSON text is invalid; the message states the byte offset.

    Examples
    --------
    >>> import regard
    >>> explained = regard.explain({"tokens": ["I", "love"], "Q": [[1, 0], [0, 1]], "K": [[1, 0], [0, 1]],
    ...                             "V": [[1, 2], [3, 4]]})
    >>> "weights" in explained.text(step="weights")
    True
    """
    native = None if model is None else _native("explain", model)
    found = _regard.explain(input, native, query, layer, head, _texts("explain", "hide", hide), truncate, full)
    return Explanation(found) if native is None else SentenceAnalysis(found)


def lesson(name: str, layout: Literal["rows", "columns"] | None = None) -> Explanation:
    """Recompute the calculations in a lesson, which is a document that teaches attention.

    Parameters
    ----------
    name : str
        The name of a lesson; :func:`lesson_entries` lists them.
    layout : {'rows', 'columns'}, optional
        Whether vectors are rows or columns; by default, as in the document.

    Returns
    -------
    Explanation

    Raises
    ------
    ValueError
        If no lesson has this name; the message lists all names.

    Examples
    --------
    >>> import regard
    >>> regard.lesson(regard.lesson_entries()[0]).html()[:2]
    '<!'
    """
    return Explanation(_regard.lesson(name, layout))


def lesson_entries() -> list[str]:
    """Return the names of all lessons, in reading order.

    Returns
    -------
    list of str
    """
    return _regard.lesson_entries()


def compare(
    model: Model, word: str, sentences: Sequence[str], hide: Sequence[str] = (), control: str = "", truncate: bool = False,
) -> Comparison:
    """Compare the vectors of one word in several sentences, layer by layer.

    Parameters
    ----------
    model : Model
        The model, as returned by :func:`load_model`.
    word : str
        The word.
    sentences : sequence of str
        Between 2 and 26 sentences, each of which contains the word.
    hide : sequence of str, default ()
        Words to hide in every sentence in which they occur, so that no token attends to them in any layer.
    control : str, default ''
        A word for comparison that occurs in at least two of the sentences. By default, all such words are used.
    truncate : bool, default False
        Whether to truncate sentences that are too long, instead of rejecting them.

    Returns
    -------
    Comparison
        The differences between the vectors in each layer, and the heads that cause them.

    Raises
    ------
    ValueError
        If a sentence does not contain the word, or if there are fewer than two sentences.
    """
    return Comparison(_regard.compare(_native("compare", model), word, _texts("compare", "sentences", sentences),
                                      _texts("compare", "hide", hide), control, truncate))


def embed(model: Model, texts: Sequence[str], truncate: bool = False) -> numpy.ndarray[Any, numpy.dtype[numpy.float32]]:
    """Return a vector of L2 norm 1 for each text: the normalized mean of the vectors of its tokens.

    Parameters
    ----------
    model : Model
        The model, as returned by :func:`load_model`.
    texts : sequence of str
        The n texts.
    truncate : bool, default False
        Whether to truncate texts that are too long, instead of rejecting them.

    Returns
    -------
    numpy.ndarray of float32, shape (n, E)

    Raises
    ------
    ValueError
        If a text is too long; the message states its index.
    """
    return _regard.embed(_native("embed", model), _texts("embed", "texts", texts), truncate)  # type: ignore[no-any-return]
