"""JSON and YAML for scripts: plain objects, times in RFC 3339, keys as the API spells them."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any


def emit(obj: Mapping[str, Any], output: str) -> None:
    """Prints one object as `json` or `yaml`. JSON escapes what a terminal would act on; YAML does the same."""
    if output == "json":
        text = json.dumps(obj, indent=2)
    else:
        import yaml

        text = yaml.safe_dump(dict(obj), sort_keys=False, allow_unicode=False).rstrip("\n")
    sys.stdout.write(text + "\n")


def manifests(path: str) -> list[dict[str, Any]]:
    """The objects of a YAML or JSON file; `-` is stdin. Raises BadFile that names the file and the line."""
    import yaml

    from taintctl.cli.errors import BadFile

    name = "stdin" if path == "-" else path
    try:
        if path == "-":
            text = sys.stdin.read(4 << 20)
        else:
            with open(path, encoding="utf-8") as file:
                text = file.read(4 << 20)
        found = [document for document in yaml.safe_load_all(text) if document is not None]
    except OSError as error:
        raise BadFile(f"{name} can't be read: {error.strerror}") from None
    except RecursionError:
        raise BadFile(f"{name} is nested too deeply for an object of Kubernetes") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f" (line {mark.line + 1})" if mark else ""
        raise BadFile(f"{name} is not valid YAML{where}: {getattr(error, 'problem', None) or error}") from None
    objects: list[Any] = []
    for document in found:
        if not isinstance(document, dict):
            raise BadFile(f"{name} holds something that is not an object; it should have apiVersion, kind and spec")
        items = document.get("items") if str(document.get("kind", "")).endswith("List") else None
        objects += items if isinstance(items, list) else [document]
    if not all(isinstance(item, dict) for item in objects):
        raise BadFile(f"{name} holds a list with something that is not an object")
    return objects
