"""The OpenAPI document, made from the contracts themselves."""

from __future__ import annotations

from typing import Any

import msgspec

from online.events import EventsAnswer
from online.items import MAX_IDS, Items
from online.releases import ReleaseReport
from schemas.api import Explanation, RecallRequest, RecallResponse
from schemas.event import Event


class ErrorBody(msgspec.Struct, frozen=True):
    """What comes with every status of 400 and above."""

    error: str
    where: str
    mend: str


ERRORS = {
    "400": "The body can't be parsed.",
    "401": "The API key is missing or wrong.",
    "413": "The body is too large.",
    "415": "Another media type than JSON and msgpack.",
    "422": "The body breaks the contract; `where` names the field.",
}


def document() -> dict[str, Any]:
    """OpenAPI 3.1."""
    kinds = (RecallRequest, RecallResponse, Explanation, ReleaseReport, ErrorBody, Items, Event, EventsAnswer)
    schemas, components = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    request, response, explanation, releases, error, items, event, taken = schemas
    errors = {status: {"description": why, "content": _content(error)} for status, why in ERRORS.items()}
    user = {
        "name": "id",
        "in": "path",
        "required": True,
        "schema": {"type": "string"},
        "description": "percent-encoded",
    }
    listed = {"type": "array", "items": {"type": "string"}, "maxItems": MAX_IDS}
    ids = {"name": "ids", "in": "query", "required": True, "schema": listed, "style": "form", "explode": True}
    size = {"name": "k", "in": "query", "required": False, "schema": {"type": "integer", "minimum": 1}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Beforehand look-up service", "version": "1"},
        "paths": {
            "/v1/recall": {"post": _act("Items for one user.", response, errors, body=request)},
            "/v1/recall:batch": {
                "post": _act("Up to 256 users; each has its own budget.", _list(response), errors, body=_list(request))
            },
            "/v1/events": {"post": _taken(event, taken, errors)},
            "/v1/users/{id}/explain": {
                "get": _act("What every rung would answer.", explanation, errors, parameters=[user, size])
            },
            "/v1/items": {
                "get": _act("Titles and categories; unknown ids are left out.", items, errors, parameters=[ids])
            },
            "/v1/edge/current.json": {"get": _file("Which bundle is rolled out to whom; short-lived.", [])},
            "/v1/edge/{bundle}/{file}": {"get": _file("A file of a bundle; it never changes.", ["bundle", "file"])},
            "/v1/releases": {"get": _act("What is loaded, and what is not and why.", releases, {})},
        },
        "components": {"schemas": components},
    }


def _taken(event: dict[str, Any], result: dict[str, Any], errors: dict[str, Any]) -> dict[str, Any]:
    act = _act("What users did, JSON only; impressions name rung and release in their context.", result, errors)
    act["requestBody"] = {"required": True, "content": {"application/json": {"schema": _list(event)}}}
    act["responses"]["202"] = act["responses"].pop("200")
    act["responses"]["503"] = {"description": "Some were not kept: send them again.", "content": _content(result)}
    return act


def _list(item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": item, "maxItems": 256}


def _act(
    summary: str,
    result: dict[str, Any],
    errors: dict[str, Any],
    body: dict[str, Any] | None = None,
    parameters: list[dict[str, Any]] | None = None,
) -> dict[str, Any]:
    act: dict[str, Any] = {
        "summary": summary,
        "responses": {"200": {"description": "An answer.", "content": _content(result)}, **errors},
    }
    if body is not None:
        act["requestBody"] = {"required": True, "content": _content(body)}
    return act | ({"parameters": parameters} if parameters else {})


def _file(summary: str, parts: list[str]) -> dict[str, Any]:
    path = [{"name": part, "in": "path", "required": True, "schema": {"type": "string"}} for part in parts]
    statuses = {"200": "The file, with its ETag.", "304": "The client has it.", "404": "There is no such file."}
    return {
        "summary": f"{summary} No key is asked for.",
        "parameters": path,
        "responses": {status: {"description": why} for status, why in statuses.items()},
    }


def _content(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}, "application/msgpack": {"schema": schema}}
