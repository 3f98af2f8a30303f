"""Elements of HTML and SVG, written by the standard library: what is text stays text."""

from xml.etree import ElementTree as ET

from services.cli.said import printable

MAX_TEXT = 200  # characters of a name on a replay's page; a longer one ends in …

Element = ET.Element
Child = Element | str | None


def el(tag: str, *children: Child, **attributes: str | float) -> Element:
    """Return an element; ``class_`` and ``aria_label`` are the attributes class and aria-label."""
    made = Element(tag, {_name(key): _text(value) for key, value in attributes.items()})
    for child in children:
        if isinstance(child, Element):
            made.append(child)
        elif child is not None:
            _append_text(made, _text(child))
    return made


def _name(key: str) -> str:
    return key.rstrip("_").replace("_", "-")


def _text(value: str | float) -> str:
    if isinstance(value, str):
        return printable(value)
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def _append_text(parent: Element, text: str) -> None:
    if len(parent):
        parent[-1].tail = (parent[-1].tail or "") + text
    else:
        parent.text = (parent.text or "") + text


def short(text: str, most: int = MAX_TEXT) -> str:
    """Return a text of at most so many characters."""
    return text if len(text) <= most else text[: most - 1] + "…"


def document(root: Element) -> bytes:
    """Return a whole page."""
    text: str = ET.tostring(root, encoding="unicode", method="html")
    return f"<!doctype html>\n{text}\n".encode()
