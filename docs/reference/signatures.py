"""What griffe cannot know of our sources: shapes in types, the parameters of equinox modules, and examples in docstrings."""

import dataclasses
import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"(?m)^>>> (?:.+\n?)+")
"""An example in a docstring: from its first prompt to the next empty line."""
BASES_WITH_FIELDS = {"equinox.Module", "eqx.Module", "typing.NamedTuple", "NamedTuple"}
DECORATORS_WITH_FIELDS = {"config", "dataclass", "dataclasses.dataclass"}


class Signatures(griffe.Extension):
    """Corrects what griffe read of each package."""

    def on_function_instance(self, *, func: griffe.Function, **kwargs: Any) -> None:
        for parameter in func.parameters:
            keep_shapes(parameter.annotation)
        keep_shapes(func.returns)

    def on_attribute_instance(self, *, attr: griffe.Attribute, **kwargs: Any) -> None:
        keep_shapes(attr.annotation)

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring:
            obj.docstring.value = EXAMPLE.sub(as_block, obj.docstring.value)

    def on_package(self, *, pkg: griffe.Module, **kwargs: Any) -> None:
        describe_fields(pkg)


def as_block(example: re.Match[str]) -> str:
    return f"```pycon\n{example[0].rstrip()}\n```\n"


def keep_shapes(annotation: Any) -> None:
    """Write the shapes of jaxtyping as they stand in the source; griffe reads `" dim"` as the name of a type."""
    if not isinstance(annotation, griffe.Expr):
        return
    for inner in (
        getattr(annotation, field.name) for field in dataclasses.fields(annotation) if field.name != "parent"
    ):
        for part in inner if isinstance(inner, list) else [inner]:
            keep_shapes(part)
    if not isinstance(annotation, griffe.ExprSubscript) or not annotation.canonical_path.startswith(
        "jaxtyping."
    ):
        return
    if isinstance(annotation.slice, griffe.ExprTuple):
        array, shape = annotation.slice.elements
        text = str(shape) if isinstance(shape, str) else str(shape).replace(" ", "")
        annotation.slice.elements = [array, '"' + text.strip("'\" ") + '"']


def describe_fields(parent: griffe.Module | griffe.Class) -> None:
    """For each class whose fields are its parameters: an `__init__` with them, and what they mean as a list."""
    for member in list(parent.members.values()):
        if member.is_alias or not isinstance(member, griffe.Module | griffe.Class):
            continue
        describe_fields(member)
        if isinstance(member, griffe.Class) and has_fields(member):
            found = {name: field for one in reversed(lineage(member)) for name, field in fields(one).items()}
            if not any("__init__" in one.members for one in lineage(member)):
                own = griffe.Parameter("self", kind=griffe.ParameterKind.positional_or_keyword)
                parameters = griffe.Parameters(
                    own, *(parameter(name, field) for name, field in found.items())
                )
                member.set_member(
                    "__init__", griffe.Function("__init__", parameters=parameters, parent=member)
                )
            list_fields(member, found)


def lineage(class_: griffe.Class) -> list[griffe.Class]:
    """A class and its base classes in our sources."""
    try:
        return [class_, *class_.mro()]
    except ValueError:
        return [class_]


def has_fields(class_: griffe.Class) -> bool:
    decorators = {
        str(decorator.value).split("(")[0] for one in lineage(class_) for decorator in one.decorators
    }
    bases = {str(base) for one in lineage(class_) for base in one.bases}
    return not decorators.isdisjoint(DECORATORS_WITH_FIELDS) or not bases.isdisjoint(BASES_WITH_FIELDS)


def fields(class_: griffe.Class) -> dict[str, griffe.Attribute]:
    """The public fields that a class itself declares; values of the class and properties are none."""
    return {
        name: field
        for name, field in class_.members.items()
        if isinstance(field, griffe.Attribute)
        and field.annotation is not None
        and "instance-attribute" in field.labels
        and not name.startswith("_")
    }


def parameter(name: str, field: griffe.Attribute) -> griffe.Parameter:
    kind = griffe.ParameterKind.positional_or_keyword
    return griffe.Parameter(name, annotation=field.annotation, kind=kind, default=default_of(field))


def default_of(field: griffe.Attribute) -> Any:
    """The default of a field, also where `field(default=...)` states it."""
    value = field.value
    if isinstance(value, griffe.ExprCall) and str(value.function).split(".")[-1] == "field":
        given = {word.name: word.value for word in value.arguments if isinstance(word, griffe.ExprKeyword)}
        made = given.get("default_factory")
        return given.get("default", None if made is None else f"{made}()")
    return value


def list_fields(class_: griffe.Class, found: dict[str, griffe.Attribute]) -> None:
    """State what fields mean below the docstring of their class, in place of a heading for each."""
    meanings = [
        f"- `{name}`: {' '.join(field.docstring.value.split())}"
        for name, field in found.items()
        if field.docstring
    ]
    if meanings:
        text = class_.docstring.value if class_.docstring else ""
        class_.docstring = griffe.Docstring(text + "\n\n" + "\n".join(meanings), parent=class_)
    for name in fields(class_):
        class_.members[name].docstring = None
