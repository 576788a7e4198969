"""Pods that a policy protects: never evicted without a Break approval, whatever else lets the plan pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from taintctl.api.plan import PROTECTED, Plan, PlannedPod, Violation
from taintctl.api.policy import Protected
from taintctl.api.text import plural, some

Criterion = tuple[str, Callable[[PlannedPod], bool]]


def protection(plan: Plan, protected: Protected | None) -> tuple[Violation, ...]:
    """One violation for each criterion that pods of the plan meet, with the uids of all of them."""
    if protected is None:
        return ()
    found = []
    for limit, meets in _criteria(protected):
        hit = [pod for pod in plan.counted_pods if meets(pod)]
        if hit:
            count = plural(len(hit), "pod")
            found.append(
                Violation(
                    check=PROTECTED,
                    limit=limit,
                    actual=count,
                    message=f"The policy protects {count} of the plan by {limit}: {some([pod.key for pod in hit])}; "
                    "leave them out of the target, wait until they have ended, or have a Break approval given.",
                    pods=tuple(sorted(pod.uid for pod in hit)),
                )
            )
    return tuple(found)


def _criteria(protected: Protected) -> Iterator[Criterion]:
    """What stands in the policy, with the words for it and whom it protects."""
    namespaces, classes = protected.namespaces, protected.priority_class_names
    of_namespace, of_pod, least = protected.namespace_selector, protected.pod_selector, protected.min_priority
    if namespaces is not None:
        yield f"namespaces {some(namespaces)}", lambda pod: pod.namespace in namespaces
    if of_namespace is not None:
        # A namespace that could not be found may have the labels.
        yield (
            "namespaceSelector",
            lambda pod: pod.namespace_labels is None or of_namespace.selects(dict(pod.namespace_labels)),
        )
    if of_pod is not None:
        yield "podSelector", lambda pod: of_pod.selects(dict(pod.labels))
    if classes is not None:
        yield f"priorityClassNames {some(classes)}", lambda pod: pod.priority_class in classes
    if least is not None:
        yield f"minPriority {least}", lambda pod: pod.priority >= least
