"""What a test asks of a page of the report."""

from __future__ import annotations

import html.parser
from collections.abc import Sequence


class Page(html.parser.HTMLParser):
    """What a test asks of a page: text by section, ids, links, attributes that could fetch or run something."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.tags: list[str] = []
        self.handlers: list[str] = []
        self.fetching: list[str] = []
        self.by_section: dict[str, str] = {}
        self._section = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.tags.append(tag)
        if tag == "h2":
            self._section = str(given.get("id", ""))
        if "id" in given:
            self.ids.append(str(given["id"]))
        if given.get("href"):
            self.links.append(str(given["href"]))
        self.handlers += [name for name in given if name.startswith("on")]
        self.fetching += [
            f"{tag} {name}" for name in given if name in ("src", "srcset", "data", "action", "poster")
        ]

    def handle_data(self, data: str) -> None:
        self.by_section[self._section] = self.by_section.get(self._section, "") + f"{data} "
