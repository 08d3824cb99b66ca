"""Complete docstrings without repetition.

An argument that means the same everywhere is described once: in ``MEANINGS``, or on the base class that declares it.
"""

from __future__ import annotations

import functools
import inspect
import re
import textwrap
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from windvane.bibliography import find_references

Documented = TypeVar("Documented", bound=Callable[..., Any])

HEADING = "Parameters\n----------\n"
WIDTH = 112  # of a line of generated text: in a class, it is then indented and has at most 120 characters
EXAMPLES = re.compile(r"^(?:Examples\n-{3,}|>>> )", re.M)
LATER_HEADING = re.compile(r"^(?:Attributes|Returns|Yields|Raises|See Also|Notes|References|Examples)\n-{3,}$", re.M)

MEANINGS = {
    "arm_geometry": 'Arms that the recommended value is for: "orthogonal" (multiples of basis vectors) or "general".',
    "arm_set": "A :class:`windvane.Ball` or a :class:`windvane.Sphere` of radius at most L.",
    "arms": "Features of the arms, [lanes, K, dim].",
    "b": "sum w_s r_s x_s, [d].",
    "beta": "Confidence radius of the decision, [lanes].",
    "bonus_scale": "Factor of the bonus; theory requires 1. One number, or one per lane.",
    "c_mu": "Infimum of mu' over ``|z| <= S L``.",
    "confidence": (
        'Where the radius holds: at any fixed round ("pointwise", as printed), at all rounds up to ``horizon`` at once '
        '("horizon"), or at all rounds at once ("anytime").'
    ),
    "delta": "Probability that the confidence set misses the parameter.",
    "dim": "Number of features of an arm.",
    "discounts": "Discounts to choose from. Default: those of the paper.",
    "draws": "Number of values used to estimate the probabilities.",
    "drift": "Total drift B_T: one number, or one per lane.",
    "features": "Features x_s of past arms, [n, d].",
    "feedback": "Checked rewards, with their arms and their decisions.",
    "forgetting": "``Discount(gamma)``, ``Window(length)`` or ``Never()``.",
    "gamma": "Discount in (0, 1]: one number, or one per lane.",
    "horizon": "Number of rounds T.",
    "k_mu": "Supremum of mu' over ``|z| <= S L``.",
    "L": "Norm bound of the arms.",
    "lam": "Regularisation: V starts as lam I.",
    "lanes": "Number of lanes, or a sequence of lane ids.",
    "link": 'Name of a link ("logistic", "poisson", "probit", "identity"), or a :class:`windvane.Link`.',
    "mask": "Lanes to which the call applies, [lanes]. Default: all.",
    "multiplier": "Factor of ||x|| in the bonus, [lanes].",
    "radius": "The largest norm of an arm, positive.",
    "restart_every": "Number of decisions between two restarts, a whole number: one number, or one per lane.",
    "reward_range": "Width of the range of rewards. Default: 2 sigma, and at least 1 with the identity link.",
    "ridge": "lam c_mu, so that g(theta) = sum w_s mu(<x_s, theta>) x_s + ridge theta.",
    "S": "Norm bound of the parameter.",
    "seed": "Seed of all random numbers.",
    "sigma": "Sub-Gaussian scale of the noise. If the link bounds the rewards, they are in [0, 2 sigma].",
    "switches": "Number of abrupt changes Gamma_T: one number, or one per lane.",
    "theta": "The parameter, [lanes, dim].",
    "theta_hat": "The estimate, [lanes, dim].",
    "tolerance": "Bound on the change in theta_hat when old observations are dropped.",
    "valid": "Arms that are on offer, [lanes, K]. Default: all.",
    "weights": "Weights w_s of past arms, [n].",
    "windows": "Windows to choose from. Default: those of the paper.",
    "window": "Number of rounds in a sliding window: one number, or one per lane.",
}


def documented(target: Documented, *sources: Any, meanings: Mapping[str, str] | None = None) -> Documented:
    """Complete the ``Parameters`` section of a class or a function. Use it as a decorator.

    Entries in the docstring are kept. An argument without an entry gets that of a base class or of ``sources``, or else
    the text in ``meanings`` or ``MEANINGS``. If an argument still has no entry, no section is added to a docstring
    without one. An example without a heading gets one.

    Parameters
    ----------
    target
        The class or function. It is left unchanged if it has no docstring.
    *sources
        Other objects whose entries apply, such as the method that ``target`` overrides.
    meanings
        Descriptions of arguments in one part of the package. They override ``MEANINGS``.

    Examples
    --------
    >>> @documented
    ... def area(dim, S):
    ...     '''Return the surface of the ball of parameters.'''
    >>> area.__doc__.splitlines()[-2:]
    ['S', '    Norm bound of the parameter.']
    """
    if not target.__doc__:
        return target
    before, own, after = _split(target.__doc__)
    bases = (*getattr(target, "__mro__", ())[1:], *sources)
    known = [own, *(_split(base.__doc__ or "")[1] for base in bases)]
    known.append({name: f"{name}\n    {meaning}" for name, meaning in {**MEANINGS, **(meanings or {})}.items()})
    names = [name for name in inspect.signature(target).parameters if name != "self"]
    section = {name: next((entries[name] for entries in known if name in entries), "") for name in names}
    is_complete = bool(own) or all(section.values())  # a part of a section would look like all of it
    parameters = HEADING + "\n".join(filter(None, dict.fromkeys(section.values()))) if names and is_complete else ""
    target.__doc__ = "\n\n".join(filter(None, [before, parameters, after]))
    return target


def add_references(docstring: str, keys: str) -> str:
    """Return a docstring with a ``References`` section before its examples.

    Parameters
    ----------
    docstring
        The docstring of a policy. It is returned as it is if none of the keys is that of a paper.
    keys
        Keys of :mod:`windvane.bibliography`, with commas between them.

    Examples
    --------
    >>> add_references("Do this.", "russac2020").splitlines()[2:4]
    ['References', '----------']
    """
    papers = [reference for reference in find_references(keys) if reference.kind != "software"]
    if not papers:
        return docstring
    text = inspect.cleandoc(docstring)
    examples = EXAMPLES.search(text)
    place = examples.start() if examples else len(text)
    entries = "\n\n".join(textwrap.fill(paper.text, WIDTH, break_on_hyphens=False) for paper in papers)
    return f"{text[:place].rstrip()}\n\nReferences\n----------\n{entries}\n\n{text[place:]}".rstrip() + "\n"


@functools.cache
def _split(docstring: str) -> tuple[str, dict[str, str], str]:
    """Return the text before the parameters, the entry of each parameter, and the text after them."""
    text = inspect.cleandoc(docstring)
    if "Examples\n---" not in text:
        text = re.sub(r"^(?=>>> )", "Examples\n--------\n", text, count=1, flags=re.M)
    before, _, rest = text.partition(HEADING)
    start = LATER_HEADING.search(rest or before)
    if not rest:
        return (before[: start.start()].strip(), {}, before[start.start() :]) if start else (before, {}, "")
    block, after = (rest[: start.start()], rest[start.start() :]) if start else (rest, "")
    entries = {}
    for entry in re.split(r"\n(?=\S)", block.strip()):
        names = entry.partition("\n")[0].partition(" : ")[0]
        entries.update(dict.fromkeys((name.strip(" *") for name in names.split(",")), entry))
    return before.strip(), entries, after
