"""GPUs that can be given away whole or in partitions, published as NVIDIA's DRA driver publishes them.

Its dynamic MIG (KEP-4815): the counters of a pool in slices of their own, then a slice for each GPU with the whole
device and its partitions. A partition carries the UUID of its parent and none of its own, since it is made only when it
is used. Memory is the nominal one of an H100 with 80 GB, an eighth of it for each memory slice.
"""

from __future__ import annotations

from typing import Any, NamedTuple

Obj = dict[str, Any]

MAX_PARTITIONS = 7
"""MIG makes no more instances of one GPU."""
MEMORY_SLICES = 8
GB_OF_A_SLICE = 10
SETS_IN_A_SLICE = 8
"""ResourceSliceMaxCounterSets of resource.k8s.io; each GPU has one."""


class Profile(NamedTuple):
    """A MIG profile of an H100: its name, the ID in a device's name, and the memory slices it covers."""

    name: str
    id: int
    size: int


_PROFILES = {
    1: Profile("7g.80gb", 0, 8),
    2: Profile("3g.40gb", 9, 4),
    3: Profile("2g.20gb", 14, 2),
    4: Profile("1g.20gb", 15, 2),
}
_SMALLEST = Profile("1g.10gb", 19, 1)


def profile(count: int) -> Profile:
    """The largest profile that fits so many times into one GPU; ValueError where none does."""
    if not 1 <= count <= MAX_PARTITIONS:
        raise ValueError(f"partitions: {count} is not between 1 and {MAX_PARTITIONS}")
    return _PROFILES.get(count, _SMALLEST)


def resource_slices(node_name: str, driver: str, gpus: list[Obj], count: int) -> list[Obj]:
    """The slices of a node's pool; each of the `gpus`, as an unpartitioned slice has them, in `count` partitions."""
    counters = [
        {"sharedCounters": [_counter_set(gpu) for gpu in gpus[first : first + SETS_IN_A_SLICE]]}
        for first in range(0, len(gpus), SETS_IN_A_SLICE)
    ]
    contents = {f"{node_name}-counters-{index}": content for index, content in enumerate(counters)}
    contents |= {f"{node_name}-{gpu['name']}": {"devices": _devices(gpu, count)} for gpu in gpus}
    pool = {"name": node_name, "generation": 1, "resourceSliceCount": len(contents)}
    return [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": name},
            "spec": {"driver": driver, "nodeName": node_name, "pool": dict(pool), **content},
        }
        for name, content in contents.items()
    ]


def _counter_set(gpu: Obj) -> Obj:
    return {"name": f"{gpu['name']}-counter-set", "counters": _counters(0, MEMORY_SLICES)}


def _counters(start: int, size: int) -> Obj:
    """Memory and, since a partition has its place, each memory slice that it covers."""
    places = {f"memory-slice-{place}": {"value": "1"} for place in range(start, start + size)}
    return {"memory": {"value": _memory(size)}, **places}


def _memory(size: int) -> str:
    return f"{size * GB_OF_A_SLICE}Gi"


def _devices(gpu: Obj, count: int) -> list[Obj]:
    """The whole device, which consumes everything, and its partitions."""
    kind = profile(count)
    whole = {**gpu, "consumesCounters": _consumes(gpu, 0, MEMORY_SLICES)}
    return [whole, *(_partition(gpu, kind, index * kind.size) for index in range(count))]


def _partition(gpu: Obj, kind: Profile, start: int) -> Obj:
    attributes = gpu["attributes"]
    kept = {name: value for name, value in attributes.items() if name not in ("uuid", "type")}
    return {
        "name": f"{gpu['name']}-mig-{kind.name.replace('.', '')}-{kind.id}-{start}",
        "attributes": {
            "type": {"string": "mig"},
            "parentUUID": attributes["uuid"],
            "profile": {"string": kind.name},
            **kept,
        },
        "capacity": {"memory": {"value": _memory(kind.size)}},
        "consumesCounters": _consumes(gpu, start, kind.size),
    }


def _consumes(gpu: Obj, start: int, size: int) -> list[Obj]:
    return [{"counterSet": f"{gpu['name']}-counter-set", "counters": _counters(start, size)}]
