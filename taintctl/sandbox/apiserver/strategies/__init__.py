"""The strategies of the built-in kinds."""

from __future__ import annotations

from taintctl.sandbox.apiserver.strategies.base import StatusStrategy, Strategy
from taintctl.sandbox.apiserver.strategies.core import NamespaceStrategy, NodeStrategy, RBACStrategy
from taintctl.sandbox.apiserver.strategies.definitions import DefinitionStrategy
from taintctl.sandbox.apiserver.strategies.dra import (
    ClaimStrategy,
    ClaimTemplateStrategy,
    TaintRuleStrategy,
)
from taintctl.sandbox.apiserver.strategies.pods import PodStrategy
from taintctl.sandbox.apiserver.strategies.policy import AdmissionPolicyStrategy, BudgetStrategy
from taintctl.sandbox.apiserver.strategies.slices import SliceStrategy
from taintctl.sandbox.apiserver.strategies.workloads import JobStrategy, WorkloadStrategy

_PLAIN = Strategy()
_RBAC = RBACStrategy()

_STRATEGIES: dict[str, Strategy] = {
    "namespaces": NamespaceStrategy(),
    "nodes": NodeStrategy(),
    "pods": PodStrategy(),
    "services": StatusStrategy({"loadBalancer": {}}),
    "deployments.apps": WorkloadStrategy(strategy={"type": "RollingUpdate"}, revisionHistoryLimit=10),
    "statefulsets.apps": WorkloadStrategy(
        {"replicas": 0}, podManagementPolicy="OrderedReady", updateStrategy={"type": "RollingUpdate"}
    ),
    "replicasets.apps": WorkloadStrategy({"replicas": 0}),
    "daemonsets.apps": StatusStrategy(
        {"currentNumberScheduled": 0, "desiredNumberScheduled": 0, "numberMisscheduled": 0, "numberReady": 0}
    ),
    "jobs.batch": JobStrategy(),
    "cronjobs.batch": StatusStrategy(),
    "poddisruptionbudgets.policy": BudgetStrategy(),
    "resourceslices.resource.k8s.io": SliceStrategy(),
    "resourceclaims.resource.k8s.io": ClaimStrategy(),
    "resourceclaimtemplates.resource.k8s.io": ClaimTemplateStrategy(),
    "devicetaintrules.resource.k8s.io": TaintRuleStrategy(),
    "customresourcedefinitions.apiextensions.k8s.io": DefinitionStrategy(),
    "validatingadmissionpolicies.admissionregistration.k8s.io": AdmissionPolicyStrategy(),
    "clusterroles.rbac.authorization.k8s.io": _RBAC,
    "clusterrolebindings.rbac.authorization.k8s.io": _RBAC,
    "roles.rbac.authorization.k8s.io": _RBAC,
    "rolebindings.rbac.authorization.k8s.io": _RBAC,
}


def strategy_of(storage_key: str) -> Strategy:
    """The strategy of a built-in resource."""
    return _STRATEGIES.get(storage_key, _PLAIN)
