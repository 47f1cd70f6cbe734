"""Types of settings, and the base of a recipe's sections."""

import re
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, field_validator
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

from quartet.config.boolean_numbers import is_boolean_number
from quartet.shipped import named_policies

Positive = Annotated[int, Field(gt=0)]
PositiveFloat = Annotated[float, Field(gt=0)]
Fraction = Annotated[float, Field(ge=0, le=1)]


def _as_list(value: object) -> object:
    """Read a single name as a list of one."""
    return [value] if isinstance(value, str) else value


Names = Annotated[list[str], BeforeValidator(_as_list)]
"""One name or several."""


MAX_NAME_BYTES = 120


def _folder_name(name: str) -> str:
    if name in ("", ".", "..") or "/" in name or not name.isprintable() or len(name.encode()) > MAX_NAME_BYTES:
        raise ValueError(
            f"{name!r} cannot name a folder -> use up to {MAX_NAME_BYTES} printable characters without '/'; "
            "to put a run elsewhere use --run-dir"
        )
    return name


FolderName = Annotated[str, AfterValidator(_folder_name)]
"""Name of a folder."""


def _device(name: str) -> str:
    if re.fullmatch(r"cpu|cuda(:\d+)?", name) is None:
        raise ValueError(f"{name!r} is not a device -> write cpu, cuda, or cuda:N for one of several")
    return name


Device = Annotated[str, AfterValidator(_device)]
"""Device that a model computes on."""


class PathMark:
    """Marker of a setting whose value is a path. A relative path in a recipe is resolved against the folder of the
    recipe's file."""


def _absolute(path: str) -> str:
    if "\0" in path:
        raise ValueError("contains a NUL character -> give the path of a file or folder")
    return str(Path(path).resolve()) if path else path


LocalPath = Annotated[str, AfterValidator(_absolute), PathMark()]
"""Path of a file or folder, or empty. It is absolute in a loaded recipe, so that a run does not depend on the current
folder."""


class PolicyMark(PathMark):
    """Marker of a path that may also be the name of a policy."""


def _policy_folder(path: str) -> str:
    named = {} if Path(path).exists() else named_policies()
    return _absolute(str(named.get(path, path)))


PolicyPath = Annotated[str, AfterValidator(_policy_folder), PolicyMark()]
"""Folder of a policy, or its name: of one that ships, or of a model that `quartet model` has made."""


def _server_url(url: str) -> str:
    if url and not url.startswith(("http://", "https://")):
        raise ValueError(f"{url!r} is not the address of a server -> write http://HOST:PORT")
    if url.rstrip("/").endswith("/v1"):
        raise ValueError(f"{url!r} ends with /v1 -> leave out /v1")
    return url


ServerUrl = Annotated[str, AfterValidator(_server_url)]
"""Address of a server, or empty."""


class Section(BaseModel):
    """Base of a recipe's sections: immutable, without unknown keys; a string under a field is its description."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_boolean_numbers(cls, value: Any, info: ValidationInfo) -> Any:
        if is_boolean_number(value, cls.model_fields[str(info.field_name)].annotation):
            raise PydanticCustomError("boolean_number", "Input should be a number, not true or false")
        return value


def named_tables(info: FieldInfo) -> Any:
    """Return the section type of a field whose values are tables by name, such as `[policies.NAME]`; else None."""
    inner = get_args(info.annotation)[-1:] if get_origin(info.annotation) is dict else ()
    return inner[0] if inner and isinstance(inner[0], type) and issubclass(inner[0], Section) else None
