"""Formulas as MathML, made while the site is built: browsers draw it by themselves, so no script is loaded for it.

Arithmatex marks what stands between dollar signs, outside of code; here the marked LaTeX is translated.
"""

from __future__ import annotations

import functools
import html
import re

from latex2mathml.converter import convert
from mkdocs.exceptions import PluginError

_MARKED = re.compile(r'<(?P<tag>span|div) class="arithmatex">\\[\[(](?P<latex>.*?)\\[\])]</(?P=tag)>', re.DOTALL)


@functools.cache
def mathml(latex: str, display: str) -> str:
    """One formula, "inline" or as a "block"; a command that is not known is an error, not a word in the formula."""
    translated = convert(html.unescape(latex).strip(), display=display)
    unknown = re.search(r"\\\w*", translated)
    if unknown:
        raise PluginError(f"no MathML for {unknown[0]} in the formula {latex.strip()}")
    return translated


def on_page_content(content: str, **_: object) -> str:
    """Every marked formula of a page, translated."""
    return _MARKED.sub(lambda found: mathml(found["latex"], "inline" if found["tag"] == "span" else "block"), content)
