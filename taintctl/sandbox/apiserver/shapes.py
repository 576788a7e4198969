"""Whether a body has the shape of its kind, as far as anything here looks into it.

A real API server decodes into Go structs, which refuses a string where a list belongs, and takes null for absent. The
tables below do the same for the parts of built-in kinds that defaults, validation and the control plane read.
"""

from __future__ import annotations

from typing import Any

from taintctl.sandbox.apiserver.errors import bad_request
from taintctl.sandbox.apiserver.meta import Object
from taintctl.sandbox.resources import ResourceInfo

_NAMES: dict[type, str] = {str: "string", int: "int64", bool: "bool"}
_MANY: Any = [{}]
_TEXTS: Any = [str]

# A dict is an object with (at least) these fields, a list a list of these, a type a value.
_REQUIREMENTS: Any = [{"key": str, "operator": str, "values": _TEXTS}]
_SELECTOR: Any = {"matchLabels": {}, "matchExpressions": _REQUIREMENTS}
_META: Any = {
    "name": str,
    "generateName": str,
    "namespace": str,
    "uid": str,
    "resourceVersion": str,
    "labels": {},
    "annotations": {},
    "finalizers": _TEXTS,
    "ownerReferences": _MANY,
    "managedFields": [{"manager": str, "operation": str, "fieldsV1": {}}],
}
_TERM: Any = {"matchExpressions": _REQUIREMENTS, "matchFields": _REQUIREMENTS}
_SCOPE: Any = {"nodeName": str, "allNodes": bool, "nodeSelector": {"nodeSelectorTerms": [_TERM]}}
_TAINT: Any = {"key": str, "value": str, "effect": str, "timeAdded": str}
_CONTAINER: Any = {
    "name": str,
    "image": str,
    "ports": _MANY,
    "resources": {"limits": {}, "requests": {}, "claims": [{"name": str}]},
}
_POD_SPEC: Any = {
    "nodeName": str,
    "containers": [_CONTAINER],
    "initContainers": [_CONTAINER],
    "tolerations": [_TAINT],
    "resourceClaims": [{"name": str, "resourceClaimName": str, "resourceClaimTemplateName": str}],
    "terminationGracePeriodSeconds": int,
}
_TEMPLATE: Any = {"metadata": _META, "spec": _POD_SPEC}
_REPLICAS: Any = {"spec": {"replicas": int, "selector": _SELECTOR, "template": _TEMPLATE}}
_REQUEST: Any = {"deviceClassName": str, "selectors": [{"cel": {"expression": str}}], "tolerations": _MANY}
_CLAIM: Any = {"devices": {"requests": [{"name": str, "exactly": _REQUEST, "firstAvailable": [_REQUEST]}]}}
_RULES: Any = [{"apiGroups": _TEXTS, "apiVersions": _TEXTS, "operations": _TEXTS, "resources": _TEXTS, "scope": str}]
_MATCH: Any = {
    "resourceRules": _RULES,
    "excludeResourceRules": _RULES,
    "objectSelector": _SELECTOR,
    "namespaceSelector": _SELECTOR,
}
_EXPRESSIONS: Any = [{"name": str, "expression": str, "message": str, "messageExpression": str, "reason": str}]
_ROLE: Any = {
    "rules": [
        {
            "verbs": _TEXTS,
            "apiGroups": _TEXTS,
            "resources": _TEXTS,
            "resourceNames": _TEXTS,
            "nonResourceURLs": _TEXTS,
        }
    ]
}
_BINDING: Any = {
    "roleRef": {"kind": str, "name": str},
    "subjects": [{"kind": str, "name": str, "namespace": str}],
}
_EVENT: Any = {"involvedObject": {}, "regarding": {}, "source": {}, "series": {}}

_STRUCTS: Any = {"spec": {}, "status": {}}

_SHAPES: dict[str, Any] = {
    "namespaces": {"spec": {"finalizers": _TEXTS}, "status": {"phase": str}},
    "nodes": {
        "spec": {"taints": [_TAINT], "unschedulable": bool},
        "status": {"conditions": _MANY, "addresses": _MANY, "nodeInfo": {}, "capacity": {}, "allocatable": {}},
    },
    "pods": {
        "spec": _POD_SPEC,
        "status": {
            "phase": str,
            "conditions": _MANY,
            "containerStatuses": [{"state": {"waiting": {}, "terminated": {}}, "restartCount": int}],
        },
    },
    "events": _EVENT,
    "events.events.k8s.io": _EVENT,
    "services": {"spec": {"ports": _MANY}},
    "replicasets.apps": _REPLICAS,
    "statefulsets.apps": {
        "spec": {**_REPLICAS["spec"], "podManagementPolicy": str, "updateStrategy": {"type": str}},
    },
    "deployments.apps": {"spec": {**_REPLICAS["spec"], "strategy": {"type": str}, "revisionHistoryLimit": int}},
    "jobs.batch": {
        "spec": {
            "template": _TEMPLATE,
            "parallelism": int,
            "completions": int,
            "backoffLimit": int,
            "completionMode": str,
            "podReplacementPolicy": str,
            "suspend": bool,
        }
    },
    "resourceslices.resource.k8s.io": {
        "spec": {
            "driver": str,
            "pool": {"name": str},
            **_SCOPE,
            "perDeviceNodeSelection": bool,
            "sharedCounters": [{"name": str, "counters": {}}],
            "devices": [
                {
                    "name": str,
                    "attributes": {},
                    "capacity": {},
                    "taints": [_TAINT],
                    "consumesCounters": [{"counterSet": str, "counters": {}}],
                    **_SCOPE,
                }
            ],
        }
    },
    "deviceclasses.resource.k8s.io": {"spec": {"selectors": [{"cel": {"expression": str}}]}},
    "resourceclaims.resource.k8s.io": {
        "spec": _CLAIM,
        "status": {"allocation": {"devices": {"results": _MANY}}, "reservedFor": _MANY},
    },
    "resourceclaimtemplates.resource.k8s.io": {"spec": {"metadata": _META, "spec": _CLAIM}},
    "devicetaintrules.resource.k8s.io": {
        "spec": {"deviceSelector": {"driver": str, "pool": str, "device": str}, "taint": _TAINT},
        "status": {"conditions": _MANY},
    },
    "poddisruptionbudgets.policy": {"spec": {"selector": _SELECTOR}, "status": {"disruptedPods": {}}},
    "clusterroles.rbac.authorization.k8s.io": _ROLE,
    "roles.rbac.authorization.k8s.io": _ROLE,
    "clusterrolebindings.rbac.authorization.k8s.io": _BINDING,
    "rolebindings.rbac.authorization.k8s.io": _BINDING,
    "customresourcedefinitions.apiextensions.k8s.io": {
        "spec": {
            "group": str,
            "scope": str,
            "names": {
                "plural": str,
                "singular": str,
                "kind": str,
                "listKind": str,
                "shortNames": _TEXTS,
                "categories": _TEXTS,
            },
            "versions": [
                {
                    "name": str,
                    "schema": {"openAPIV3Schema": {}},
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [{"name": str, "type": str, "jsonPath": str, "priority": int}],
                }
            ],
        }
    },
    "validatingadmissionpolicies.admissionregistration.k8s.io": {
        "spec": {
            "failurePolicy": str,
            "paramKind": {"apiVersion": str, "kind": str},
            "matchConstraints": _MATCH,
            "matchConditions": _EXPRESSIONS,
            "variables": _EXPRESSIONS,
            "validations": _EXPRESSIONS,
        }
    },
    "validatingadmissionpolicybindings.admissionregistration.k8s.io": {
        "spec": {
            "policyName": str,
            "validationActions": _TEXTS,
            "matchResources": _MATCH,
            "paramRef": {"name": str, "namespace": str, "selector": _SELECTOR},
        }
    },
}


def check_shape(info: ResourceInfo, obj: Object) -> None:
    """ApiError 400 where something has the wrong type; a null where an object or a list belongs is taken out."""
    opened = {} if info.custom else _STRUCTS
    shape = {"metadata": _META, **opened, **_SHAPES.get(info.key, {})}
    _check(obj, shape, info.kind)
    for part in ("labels", "annotations"):
        for key, value in obj["metadata"].get(part, {}).items():
            if not isinstance(value, str):
                raise _wrong(value, f"{info.kind}.metadata.{part}.{key}", "string")


def _check(value: Any, shape: Any, path: str) -> None:
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            raise _wrong(value, path, "object")
        for name, inner in shape.items():
            if name not in value:
                continue
            if value[name] is None:
                del value[name]
            else:
                _check(value[name], inner, f"{path}.{name}")
    elif isinstance(shape, list):
        if not isinstance(value, list):
            raise _wrong(value, path, "list")
        for one in value:
            _check(one, shape[0], path)
    elif not isinstance(value, shape) or (shape is int and isinstance(value, bool)):
        raise _wrong(value, path, _NAMES[shape])


def _wrong(value: Any, path: str, wanted: str) -> Exception:
    kind = {dict: "object", list: "array", str: "string", bool: "bool", type(None): "null"}.get(type(value), "number")
    return bad_request(f"json: cannot unmarshal {kind} into Go struct field {path} of type {wanted}")
