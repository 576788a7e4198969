"""Who holds which device: claims, and the pods that their `reservedFor` names."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from taintctl.api.objects import ConsumerReference, DeviceSelector, Pod, Snapshot, Toleration
from taintctl.api.plan import DeviceID

EXTENDED_RESOURCE_CLAIM = "resource.kubernetes.io/extended-resource-claim"
"""The scheduler sets it to "true" on claims that it makes for a pod's extended resources (recording 01)."""


@dataclass(frozen=True)
class Hold:
    """One allocation result of one claim: the claim holds the device, its consumers use it."""

    device: DeviceID
    namespace: str
    claim: str
    admin_access: bool
    tolerations: tuple[Toleration, ...]
    extended: bool
    """The claim stands for extended resources: the taint neither counts nor deletes its pod (recording 02, dry-ext)."""
    consumers: tuple[ConsumerReference, ...]
    node: str = ""
    """The one node that the allocation is for; empty where that is none or several."""


class Allocations:
    """The allocations of a snapshot, found by driver and pool, and its pods by uid."""

    def __init__(self, snapshot: Snapshot) -> None:
        by_pool: dict[tuple[str, str], list[Hold]] = defaultdict(list)
        for claim in snapshot.claims:
            if claim.status.allocation is None:
                continue
            extended = (claim.metadata.annotations or {}).get(EXTENDED_RESOURCE_CLAIM) == "true"
            for result in claim.status.allocation.devices.results or ():
                by_pool[(result.driver, result.pool)].append(
                    Hold(
                        device=DeviceID(result.driver, result.pool, result.device),
                        namespace=claim.metadata.namespace,
                        claim=claim.metadata.name,
                        admin_access=bool(result.admin_access),
                        tolerations=result.tolerations or (),
                        extended=extended,
                        consumers=claim.status.reserved_for or (),
                        node=claim.status.allocation.node,
                    )
                )
        self._by_pool: Mapping[tuple[str, str], list[Hold]] = dict(by_pool)
        self._pods = {pod.metadata.uid: pod for pod in snapshot.pods}

    def holds(self, selector: DeviceSelector) -> Iterator[Hold]:
        """What is allocated of the devices that `selector` matches, its slices there or gone (upstream matches
        rules against allocation results)."""
        if selector.driver is not None and selector.pool is not None:
            held = self._by_pool.get((selector.driver, selector.pool), [])
        else:
            held = [hold for group in self._by_pool.values() for hold in group]
        return (hold for hold in held if selects(selector, hold.device))

    def pod(self, consumer: ConsumerReference) -> Pod | None:
        """The pod that `consumer` means, by uid; None where it is gone (or is no pod)."""
        return self._pods.get(consumer.uid) if is_pod(consumer) else None


def selects(selector: DeviceSelector, device: DeviceID) -> bool:
    """Whether a DeviceTaintRule with this selector matches the device: every field given must (upstream
    ruleMatchesDevice). An empty selector matches all."""
    return (
        selector.driver in (None, device.driver)
        and selector.pool in (None, device.pool)
        and selector.device in (None, device.device)
    )


def is_pod(consumer: ConsumerReference) -> bool:
    """A consumer that is no pod is a PodGroup: its pods are not named in the claim."""
    return consumer.resource == "pods" and consumer.api_group == ""


def holds_as_extended(hold: Hold, pod: Pod) -> bool:
    """Whether `pod` holds the device through an extended resource: the claim or the pod's status says so."""
    status = pod.status.extended_resource_claim_status
    return hold.extended or (status is not None and status.resource_claim_name == hold.claim)
