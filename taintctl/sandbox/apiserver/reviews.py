"""Questions that are asked by creating an object which is never stored: may I, and who am I?"""

from __future__ import annotations

from typing import Any

from taintctl.sandbox.apiserver import errors
from taintctl.sandbox.apiserver.meta import Object, timestamp
from taintctl.sandbox.apiserver.rbac import Attributes, Authorizer
from taintctl.sandbox.store import Store
from taintctl.sandbox.users import User

ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
SELF_REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


def review(path: str, body: Any, user: User, authorizer: Authorizer, store: Store) -> Object:
    """The answer to a review that is posted to one of the two paths."""
    if not isinstance(body, dict):
        raise errors.bad_request("the request body is not an object: send one Kubernetes object")
    if path == SELF_REVIEWS:
        return {
            "kind": "SelfSubjectReview",
            "apiVersion": "authentication.k8s.io/v1",
            "metadata": {"creationTimestamp": timestamp(store.clock.now())},
            "status": {"userInfo": {"username": user.name, "uid": user.uid, "groups": list(user.groups)}},
        }
    spec = body.get("spec") or {}
    wanted = _attributes(spec)
    allowed = authorizer.allows(user, wanted)
    return {
        "kind": "SelfSubjectAccessReview",
        "apiVersion": "authorization.k8s.io/v1",
        "metadata": {"creationTimestamp": None},
        "spec": spec,
        "status": {"allowed": allowed} if allowed else {"allowed": False, "reason": wanted.refusal(user)},
    }


def _attributes(spec: Object) -> Attributes:
    resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if bool(resource) == bool(path):
        why = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        problem = errors.invalid_value("spec.resourceAttributes", resource, why)
        raise errors.invalid("SelfSubjectAccessReview", "authorization.k8s.io", "", [problem])
    if path:
        return Attributes(verb=path.get("verb", ""), path=path.get("path", ""))
    assert resource is not None
    sub = resource.get("subresource", "")
    return Attributes(
        verb=resource.get("verb", ""),
        group=resource.get("group", ""),
        resource=resource.get("resource", "") + (f"/{sub}" if sub else ""),
        namespace=resource.get("namespace", ""),
        name=resource.get("name", ""),
    )
