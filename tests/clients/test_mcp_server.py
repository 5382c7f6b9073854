"""The tools for assistants, asked by a client of the protocol."""

import asyncio
import json
import os
import re
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from gpuportal_client.connection import Portal

from tests.clients.conftest import Running
from tests.clients.test_commands import DOCUMENT, JOB, UNKNOWN, answering, documented

CALLS: dict[str, dict[str, Any]] = {
    "why_pending": {},
    "usage": {"group_by": "team"},
    "waste": {},
    "quotas": {},
    "explain": {"figure": "idle_gpu_hours"},
    "preflight": {"cluster": "west", "namespace": "vision", "manifest": JOB % 1},
}
"""A call of each tool."""
TOOLS = set(CALLS)

# The protocol takes half a second to import: only processes that run these tests do it.


def make_server(portal: Portal) -> Any:
    from gpuportal_client import mcp_server

    return mcp_server.make_server(portal)


async def _asked(server: Any, *calls: tuple[str, dict[str, Any]]) -> list[Any]:
    """Return the tools, and the answer to each call: its object, or the text of its error."""
    from mcp import Client

    async with Client(server) as client:
        listed = (await client.list_tools()).tools
        assert all(tool.annotations and tool.annotations.read_only_hint for tool in listed)
        answers: list[Any] = [{tool.name for tool in listed}]
        for name, arguments in calls:
            result = await client.call_tool(name, arguments)
            text = getattr(result.content[0], "text", "")
            answers.append(text if result.is_error else result.structured_content)
        return answers


def test_the_document_shows_each_tool_with_members_that_its_answer_has(running: Running) -> None:
    """Ask what the document asks, and look for each member that it shows."""
    text = DOCUMENT.read_text(encoding="utf-8")
    shown = re.findall(r"^    (\w+) (\{.*\})\n((?:    .+\n)+)", text, re.MULTILINE)
    calls = [(name, json.loads(arguments)) for name, arguments, _ in shown]
    assert {name for name, _ in calls} == TOOLS
    west = running.stocked.portal.clusters[0].name
    for name, arguments in calls:
        arguments.update({key: west for key in ("cluster",) if key in arguments})
        arguments.update({key: "vision" for key in ("namespace",) if key in arguments})
        arguments.update({key: JOB % 1 for key in ("manifest",) if key in arguments})
        if name == "explain":
            del arguments["tier"]
    server = make_server(Portal(running.url, running.stocked.tokens["lead"]))
    _, *answers = asyncio.run(_asked(server, *calls))
    for (name, _, output), answer in zip(shown, answers, strict=True):
        members = set(re.findall(r'"(\w+)": ', output))
        assert members <= set(_members(answer)), name


def _members(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from value
        for inner in value.values():
            yield from _members(inner)
    for inner in value if isinstance(value, list) else ():
        yield from _members(inner)


def test_each_tool_answers_for_the_person_of_the_token(running: Running) -> None:
    stocked = running.stocked
    west = {"cluster": stocked.portal.clusters[0].name}
    calls = {**CALLS, "preflight": CALLS["preflight"] | west}
    lead, outsider = (
        asyncio.run(_asked(make_server(Portal(running.url, stocked.tokens[role])), *calls.items()))
        for role in ("lead", "outsider")
    )
    assert lead[0] == TOOLS
    for answer in lead[1:5]:
        assert 0 < len(answer["rows"]) <= answer["rows_in_all"]
    assert lead[5]["holds"]
    assert [one["verdict"] for one in lead[6]["results"]]
    teams = {row["team"] for row in outsider[1]["rows"]}
    assert teams.isdisjoint(row["team"] for row in lead[1]["rows"])
    # To an outsider a namespace of others and one that is not there are the same.
    assert "There is no namespace vision on" in outsider[6]
    documented(running)


def test_faults_are_sentences(running: Running) -> None:
    wrong = make_server(Portal(running.url, "0" * 40))
    _, *refused = asyncio.run(_asked(wrong, *CALLS.items()))
    assert all("does not accept the token" in text for text in refused), refused
    server = make_server(Portal(running.url, running.stocked.tokens["lead"]))
    body = {"cluster": "nowhere", "namespace": "x", "manifest": JOB % 1}
    _, foreign, unknown = asyncio.run(
        _asked(server, ("preflight", body), ("usage", {"group_by": "colour"}))
    )
    assert "nowhere" in foreign
    assert "'colour' is not known" in unknown


@pytest.mark.parametrize(
    ("status", "body", "told"),
    [
        pytest.param(404, UNKNOWN, "older than this client", id="address"),
        pytest.param(
            *(400, '{"detail": "x: is not a parameter here"}', "may be older than this client"),
            id="parameter",
        ),
        pytest.param(502, "<html>", "answers 502: the portal, or a proxy", id="in trouble"),
    ],
)
@pytest.mark.parametrize("tool", sorted(TOOLS))
def test_an_old_portal_and_one_that_is_not_there_are_told_in_a_sentence(
    tool: str, status: int, body: str, told: str
) -> None:
    with answering(status, body, {}) as url:
        server = make_server(Portal(url, "x" * 40))
        _, answer = asyncio.run(_asked(server, (tool, CALLS[tool])))
    assert told in answer
    # Its port is closed now: nothing answers.
    _, gone = asyncio.run(_asked(server, (tool, CALLS[tool])))
    assert f"{url} cannot be reached: check --url, your network" in gone


def test_it_is_served_on_standard_input(running: Running) -> None:
    from mcp import StdioServerParameters

    command = StdioServerParameters(
        command=sys.executable,
        args=["-c", "from gpuportal_client.commands import main; main()", "mcp"],
        env={**os.environ, "PYTHONPATH": "clients"},
    )
    tools, answer = asyncio.run(_asked(command, ("quotas", {})))
    assert tools == TOOLS
    assert answer["rows"]
