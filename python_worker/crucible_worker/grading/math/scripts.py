"""Raised and lowered characters of Unicode as LaTeX: a run of them is one exponent or one index."""

# ruff: noqa: RUF001 - these tables are about signs that look like others.

from __future__ import annotations

import re

__all__ = ["written_out"]

_PLAIN_RAISED = "0123456789+-=()abcdefghijklmnoprstuvwxyzABDEGHIJKLMNOPRTUVW/"
_RAISED = "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁼⁽⁾ᵃᵇᶜᵈᵉᶠᵍʰⁱʲᵏˡᵐⁿᵒᵖʳˢᵗᵘᵛʷˣʸᶻᴬᴮᴰᴱᴳᴴᴵᴶᴷᴸᴹᴺᴼᴾᴿᵀᵁⱽᵂᐟ"
_PLAIN_LOWERED = "0123456789+-=()aehijklmnoprstuvx"
_LOWERED = "₀₁₂₃₄₅₆₇₈₉₊₋₌₍₎ₐₑₕᵢⱼₖₗₘₙₒₚᵣₛₜᵤᵥₓ"

_PLAIN = {
    **{ord(sign): plain for sign, plain in zip(_RAISED, _PLAIN_RAISED, strict=True)},
    **{ord(sign): plain for sign, plain in zip(_LOWERED, _PLAIN_LOWERED, strict=True)},
}
_FRACTION = re.compile(f"([{_RAISED[:10]}]++)[⁄/]([{_LOWERED[:10]}]++)")
_RUN = re.compile(f"([{_RAISED}]++)|([{_LOWERED}]++)")


def written_out(text: str) -> str:
    """A text with `x^{10}` for x¹⁰, `x_{12}` for x₁₂, and fractions for raised over lowered digits. Linear time."""
    return _RUN.sub(_grouped, _FRACTION.sub(_divided, text))


def _divided(found: re.Match[str]) -> str:
    above, below = (part.translate(_PLAIN) for part in found.groups())
    return f"\\frac{{{above}}}{{{below}}}"


def _grouped(found: re.Match[str]) -> str:
    return f"{'^' if found[1] else '_'}{{{found[0].translate(_PLAIN)}}}"
