"""An extension of griffe, which reads the Python package for the site: docstrings become Markdown.

Those of the C++ part are taken from the module itself, since its stub has none, without the signatures that pybind11 puts
in front: the stub has better ones.
"""

import inspect
import re

import griffe
import sparsewire

CORE = "sparsewire._core."


def runtime_docstring(path):
    found = sparsewire._core
    for name in path.removeprefix(CORE).split("."):
        found = getattr(found, name, None)
    if found is None or isinstance(found, (str, int)):
        return ""
    if path.endswith(".__init__"):
        return ""
    text = inspect.cleandoc(getattr(found, "__doc__", None) or "")
    name = path.rsplit(".", 1)[1]
    signature = rf"^(?:\d+\. )?{name}\(.*\)(?: -> .*)?$|^Overloaded function\.$"
    return re.sub(signature, "", text, flags=re.MULTILINE).strip()


def markdown(text):
    text = re.sub(r":(?:class|func|meth|attr|mod):`~?([^`]*)`", r"`\1`", text)
    out, example = [], False
    for line in text.split("\n"):
        if not example and line.startswith(">>> "):
            out += ["", "```pycon"]
            example = True
        elif example and not line.strip():
            out += ["```"]
            example = False
        out.append(line)
    return "\n".join([*out, "```"] if example else out)


def with_overloads(parent):
    """A stub has no implementation behind its overloads: the last one stands for it."""
    for name, all_of in parent.overloads.items():
        if name in parent.members or not all_of:
            continue
        last = all_of[-1]
        one = griffe.Function(name, parameters=last.parameters, returns=last.returns, lineno=last.lineno, endlineno=last.endlineno, parent=parent)
        one.overloads = list(all_of)
        parent.set_member(name, one)
        text = runtime_docstring(one.path) if one.path.startswith(CORE) else ""
        one.docstring = griffe.Docstring(markdown(text), parent=one) if text else None


class Docstrings(griffe.Extension):
    def on_class_members(self, *, cls, **_):
        with_overloads(cls)

    def on_module_members(self, *, mod, **_):
        with_overloads(mod)

    def on_instance(self, *, obj, **_):
        if obj.is_alias:
            return
        text = obj.docstring.value if obj.docstring else ""
        if obj.path.startswith(CORE) and not obj.is_module:
            text = runtime_docstring(obj.path)
        obj.docstring = griffe.Docstring(markdown(text), parent=obj) if text else None
