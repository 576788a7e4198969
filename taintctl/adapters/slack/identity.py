"""Who clicked, by Slack's server. Whatever can't be asked is a no."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from taintctl.adapters.slack.client import Self, SlackClient
from taintctl.api.text import one_line
from taintctl.ports.chat import ChatError, Person

MAX_GROUPS = 100
"""As many as a policy may list approvers."""
_GROUP_ID = re.compile(r"S[A-Z0-9]{5,20}", re.ASCII)
NO_GROUP = frozenset({"no_such_subteam", "subteam_not_found"})


class Stranger(Exception):
    """Somebody of another workspace. The text is for them."""


class Identity:
    def __init__(self, client: SlackClient) -> None:
        self._client = client

    async def person(self, user_id: str, claimed_team: str, groups: Sequence[str]) -> Person:
        """`claimed_team` is the envelope's; the server is asked all the same. Raises Stranger, and ChatError where one
        of the questions got no answer."""
        me = await self._client.who()
        self.same_team(me, claimed_team)
        user = (await self._client.call("users.info", patient=True, user=user_id)).get("user")
        if not isinstance(user, dict) or user.get("id") != user_id:
            raise ChatError("Slack's users.info says nothing of who clicked.")
        if user.get("is_stranger") or not _member(user, me):
            raise Stranger(_refusal())
        profile = user.get("profile")
        profile = profile if isinstance(profile, dict) else {}
        name = profile.get("display_name") or profile.get("real_name") or user.get("name") or ""
        email = profile.get("email") or ""
        return Person(
            user_id=user_id,
            team_id=me.team_id,
            name=one_line(str(name), 200),
            email=email
            if isinstance(email, str) and len(email) <= 256 and user.get("is_email_confirmed", True)
            else "",
            groups=await self._groups(user_id, list(dict.fromkeys(groups))[:MAX_GROUPS]),
            is_bot=bool(user.get("is_bot") or user.get("is_workflow_bot")),
            deleted=bool(user.get("deleted")),
        )

    def same_team(self, me: Self, claimed_team: str) -> None:
        """Only a first look: in an Enterprise organisation people may come with another workspace's id."""
        if claimed_team and claimed_team != me.team_id and not me.enterprise_id:
            raise Stranger(_refusal())

    async def _groups(self, user_id: str, wanted: list[str]) -> frozenset[str]:
        """Of `wanted` (ids, or handles with or without @) those that the person is in: as they were asked for, and by
        their ids."""
        handles: dict[str, str] = {}
        if any(not _GROUP_ID.fullmatch(name) for name in wanted):
            handles = await self._handles()
        found: set[str] = set()
        for name in wanted:
            group = name if _GROUP_ID.fullmatch(name) else handles.get(name.removeprefix("@").lower(), "")
            if group and await self._in(group, user_id):
                found |= {name, group}
        return frozenset(found)

    async def _handles(self) -> dict[str, str]:
        listed = (await self._client.call("usergroups.list", patient=True)).get("usergroups")
        if not isinstance(listed, list):
            raise ChatError("Slack's usergroups.list lists nothing.")
        return {
            group["handle"].lower(): group["id"]
            for group in listed
            if isinstance(group, dict) and isinstance(group.get("handle"), str) and isinstance(group.get("id"), str)
        }

    async def _in(self, group: str, user_id: str) -> bool:
        try:
            users = (await self._client.call("usergroups.users.list", patient=True, usergroup=group)).get("users")
        except ChatError as error:
            if error.code in NO_GROUP:  # a group that is gone has nobody in it
                return False
            raise
        if not isinstance(users, list):
            raise ChatError("Slack's usergroups.users.list lists nothing.")
        return user_id in users


def _member(user: dict[str, Any], me: Self) -> bool:
    if user.get("team_id") == me.team_id:
        return True
    grid = user.get("enterprise_user")
    if not me.enterprise_id or not isinstance(grid, dict) or grid.get("enterprise_id") != me.enterprise_id:
        return False
    teams = grid.get("teams")
    return isinstance(teams, list) and me.team_id in teams


def _refusal() -> str:
    return "You are of another workspace, and only people of this one may decide here. Nothing changed."
