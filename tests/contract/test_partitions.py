"""What the product needs of partitionable devices (KEP-4815): a partition and its GPU share hardware, not taints."""

from __future__ import annotations

import pytest

from tests.contract.lab import Lab


async def holds(lab: Lab, name: str, kind: str) -> str | None:
    """The device of a new pod that asks for a `whole` or a `half` and runs."""
    await lab.claim(name, deviceClassName=f"{lab.id}-{kind}")
    await lab.pod(name, claim=name)
    return await lab.device_of(name)


async def waits(lab: Lab, name: str, kind: str) -> None:
    """A new pod that asks for a `whole` or a `half` and gets none."""
    await lab.claim(name, deviceClassName=f"{lab.id}-{kind}")
    await lab.ask(name, claim=name)
    await lab.sleep(10)
    assert (await lab.state(name), await lab.device_of(name)) == ("Pending", None)


async def leaves(lab: Lab, name: str) -> None:
    await lab.api.must(lab.api.delete(f"{lab.pods}/{name}"))
    await lab.gone(name)


async def test_no_partition_is_allocated_while_the_whole_gpu_is(split_lab: Lab) -> None:
    assert await holds(split_lab, "all", "whole") == "gpu-0"
    await waits(split_lab, "part", "half")
    await leaves(split_lab, "all")
    await split_lab.runs("part")
    assert await split_lab.device_of("part") == "gpu-0-half-0"


async def test_the_whole_gpu_is_not_allocated_while_a_partition_is(split_lab: Lab) -> None:
    assert await holds(split_lab, "part", "half") == "gpu-0-half-0"
    await waits(split_lab, "all", "whole")
    assert await holds(split_lab, "other", "half") == "gpu-0-half-1"
    await leaves(split_lab, "part")
    await split_lab.sleep(15)
    assert await split_lab.device_of("all") is None
    await leaves(split_lab, "other")
    await split_lab.runs("all")
    assert await split_lab.device_of("all") == "gpu-0"


async def test_a_rule_on_the_gpu_neither_counts_nor_evicts_a_partitions_pod(split_lab: Lab) -> None:
    lab = split_lab
    assert await holds(lab, "part", "half") == "gpu-0-half-0"
    await lab.rule("r", "None", pool=lab.split, device="gpu-0")
    assert await lab.counts("r") == {"published": 1, "allocated": 0, "pods": 0, "namespaces": 0}
    await lab.set_effect("r", "NoExecute")
    assert (await lab.condition("r"))["reason"] == "NotStarted"
    await lab.sleep(12)
    assert await lab.state("part") == "Running"


async def test_a_rule_on_a_partition_reaches_neither_the_gpu_nor_the_other_partition(split_lab: Lab) -> None:
    lab = split_lab
    await holds(lab, "part", "half")
    await holds(lab, "other", "half")
    await lab.rule("r", "None", pool=lab.split, device="gpu-0-half-0")
    assert await lab.counts("r") == {"published": 1, "allocated": 1, "pods": 1, "namespaces": 1}
    await lab.set_effect("r", "NoExecute")
    await lab.gone("part")
    assert await lab.state("other") == "Running"
    await leaves(lab, "other")
    # The taint is on the partition alone: the whole GPU, idle now, is given away under it.
    assert await holds(lab, "all", "whole") == "gpu-0"


@pytest.mark.parametrize(
    ("tainted", "kind", "given"), [("gpu-0", "half", "gpu-0-half-0"), ("gpu-0-half-0", "whole", "gpu-0")]
)
async def test_no_schedule_keeps_only_the_named_device_back(
    split_lab: Lab, tainted: str, kind: str, given: str
) -> None:
    lab = split_lab
    await lab.rule("r", "NoSchedule", pool=lab.split, device=tainted)
    await lab.condition("r")
    await lab.sleep(2)
    assert await holds(lab, "p", kind) == given


async def test_a_rule_over_the_pool_takes_the_gpu_and_its_partitions(split_lab: Lab) -> None:
    lab = split_lab
    await holds(lab, "part", "half")
    await lab.rule("r", "None", pool=lab.split)
    assert await lab.counts("r") == {"published": 3, "allocated": 1, "pods": 1, "namespaces": 1}
    await lab.set_effect("r", "NoExecute")
    await lab.gone("part")
