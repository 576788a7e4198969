"""The approval as Slack shows it: the question, a click that may not, the window of details, the click that counts."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable

from taintctl.api.run import MaintenanceRun
from taintctl.api.text import plural
from taintctl.cli.errors import Failure
from taintctl.cli.story.slack import ADA, CHANNEL_NAME, GROUP_NAME, OLGA, Workspace, seen
from taintctl.cli.story.stage import Stage
from taintctl.sandbox.slack.people import Message

Now = Callable[[], Awaitable[MaintenanceRun]]


async def approve_in_slack(stage: Stage, slack: Workspace, now: Now) -> None:
    """From the message to the approval that counts. Raises Failure for whatever is not so."""

    async def asked() -> Message | None:
        found = slack.message
        return found if found is not None and "Approve" in _buttons(found) else None

    async def connected() -> bool | None:
        return slack.server.sockets.open.is_set() or None

    message = await stage.until("the question in Slack", asked)
    await stage.until("the controller's socket to Slack", connected)
    stage.tell(f"The policy names whoever is in Slack's group @{GROUP_NAME}. This is what #{CHANNEL_NAME} shows:")
    stage.quote(seen(message))
    run = await now()
    assert run.status.plan is not None
    await _click(stage, slack, OLGA, "Approve")
    told = await stage.until("the answer to Olga", _answer(slack, OLGA))
    approval = (await now()).status.approval
    stage.require("not among the approvers" in told.text, "Olga is told that she is not among the approvers")
    stage.require(not (approval and approval.given), "Olga's click does not count")
    stage.require(not slack.only_to(ADA), "only Olga sees the answer")
    stage.tell(f"Olga, who is not in @{GROUP_NAME}, clicks Approve. Only she sees the answer:")
    stage.quote(seen(told))
    await _click(stage, slack, ADA, "Details")

    async def opened() -> str | None:
        view = slack.view
        return json.dumps(view.view["blocks"]) if view is not None and view.trail else None

    details = await stage.until("the window of details", opened)
    pods = run.status.plan.pods
    stage.require(all(pod.name in details for pod in pods), "the window names every pod of the plan")
    stage.tell(
        f"Ada, who is, clicks Details: a window lists {plural(len(pods), 'pod')} by name, with what becomes of each, "
        f"and every device. Then she clicks Approve, and only she sees:"
    )
    await _click(stage, slack, ADA, "Approve")
    told = await stage.until("the answer to Ada", _answer(slack, ADA))
    stage.quote(seen(told))

    async def counted() -> MaintenanceRun | None:
        found = await now()
        given = found.status.approval.given if found.status.approval else ()
        return found if [(str(g.kind), g.approver) for g in given] == [("Slack", ADA)] else None

    await stage.until("the click to count", counted)


async def thread(stage: Stage, slack: Workspace) -> None:
    """What the thread told meanwhile, up to the end of the run."""

    async def ended() -> list[Message] | None:
        found, message = slack.thread, slack.message
        done = any(one.text.startswith("Succeeded") for one in found)
        return found if done and message is not None and "Approve" not in _buttons(message) else None

    told = await stage.until("the end in Slack's thread", ended)
    message = slack.message
    assert message is not None
    posts = [one for one in slack.channel.messages if not one.thread_ts]
    stage.require(len(posts) == 1, "the run has one message in the channel")
    stage.tell(f"In #{CHANNEL_NAME} the same message now begins so, with no button to approve any more:")
    stage.quote(seen(message)[:2])
    stage.tell("and this is its thread:")
    stage.quote([line for one in told for line in seen(one)])


def _answer(slack: Workspace, user: str) -> Callable[[], Awaitable[Message | None]]:
    async def look() -> Message | None:
        found = slack.only_to(user)
        return found[-1] if found else None

    return look


def _buttons(message: Message) -> list[str]:
    return [button["text"]["text"] for button in message.buttons()]


async def _click(stage: Stage, slack: Workspace, user: str, button: str) -> None:
    """Waits for the button: a dry run that is made afresh takes it away for a moment."""

    async def there() -> Message | None:
        found = slack.message
        return found if found is not None and button in _buttons(found) else None

    message = await stage.until(f"the button {button}", there)
    try:
        await slack.server.click(user, message, button)
    except TimeoutError:
        raise Failure(f"step {stage.step}: the controller did not take the click on {button} within 3 s") from None
