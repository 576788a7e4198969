"""Whose the pods of a plan are, and whose work is lost with them elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Set
from itertools import chain

from taintctl.api.objects import Pod, Snapshot
from taintctl.api.ownership import Gang, Ownership, groups_of, owner_text
from taintctl.api.plan import LostPod, LostWith


class Owners:
    """The top owners and gangs of `pods`, as far as a snapshot knows them."""

    def __init__(self, snapshot: Snapshot, pods: Iterable[Pod]) -> None:
        known = Ownership(snapshot.owners)
        self._pods = {pod.metadata.uid: pod for pod in pods}
        self._elsewhere = {
            pod.metadata.uid: pod
            for pod in chain(snapshot.gang_pods, snapshot.pods)
            if pod.metadata.uid not in self._pods
        }
        self._known = known
        self._tops = {uid: top for uid, pod in self._pods.items() if (top := known.top(pod)) is not None}
        self._gangs = {uid: gang for uid, pod in self._pods.items() if (gang := known.gang(pod)) is not None}
        self._groups = groups_of(
            chain((top.owner for top in self._tops.values()), (gang.owner for gang in self._gangs.values()))
        )

    def text(self, pod: Pod) -> str:
        """`Kind/name` of the top owner as far as it is known; empty for a pod without a controller."""
        top = self._tops.get(pod.metadata.uid)
        return owner_text(top.owner, self._groups) if top is not None else ""

    def unread(self, pod: Pod) -> str:
        top = self._tops.get(pod.metadata.uid)
        return top.unread.value if top is not None and top.unread is not None else ""

    def workload(self, pod: Pod) -> str:
        top = self._tops.get(pod.metadata.uid)
        return "/".join(top.key) if top is not None else ""

    def lost_with(self, going: Set[str]) -> tuple[LostWith, ...]:
        """The running pods that are in a gang with one of `going` (uids) and hold no device of the plan."""
        hit: dict[tuple[object, str], list[Gang]] = {}
        for uid in going:
            if uid in self._gangs:
                hit.setdefault(self._gangs[uid].key, []).append(self._gangs[uid])
        lost: dict[tuple[object, str], list[LostPod]] = {}
        for pod in self._elsewhere.values() if hit else ():
            gang = self._known.gang(pod)
            if gang is not None and gang.key in hit and _runs(pod):
                found = LostPod(pod.metadata.name, pod.metadata.uid, pod.spec.node_name or "")
                lost.setdefault(gang.key, []).append(found)
        return tuple(
            sorted(
                LostWith(
                    namespace=hit[key][0].namespace,
                    owner=owner_text(hit[key][0].owner, self._groups),
                    part=hit[key][0].part,
                    hit=len(hit[key]),
                    pods=tuple(sorted(pods)),
                )
                for key, pods in lost.items()
            )
        )


def _runs(pod: Pod) -> bool:
    return bool(pod.spec.node_name) and not pod.finished and pod.metadata.deletion_timestamp is None
