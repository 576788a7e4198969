"""Who is asking, what RBAC lets them do, and what admission policies say."""

from __future__ import annotations

from typing import Any

import pytest

from taintctl.sandbox.users import Users, kubeconfig

RBAC = "/apis/rbac.authorization.k8s.io/v1"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
PATH = "/api/v1/namespaces/default/configmaps"


async def test_no_token_and_an_unknown_token_are_401(api: Any) -> None:
    for token in ("", "unknown"):
        status, answer = await api.ask("GET", "/api/v1/pods", token=token)
        assert (status, answer["reason"], answer["message"]) == (401, "Unauthorized", "Unauthorized")


async def test_a_token_in_the_path_is_for_clients_that_send_none(api: Any) -> None:
    config = api.server.kubeconfig(api.users.admin)
    server = config["clusters"][0]["cluster"]["server"]
    async with api.session.get(f"{server}/api/v1/nodes") as response:
        assert response.status == 200
    async with api.session.get(f"{server}/api/v1/nodes", headers={"Authorization": "Bearer x"}) as response:
        assert response.status == 401
    assert config["users"][0]["user"]["token"] == api.users.admin.token


def test_users_keep_their_identity() -> None:
    users = Users()
    account = users.service_account("team", "runner")
    assert account.name == "system:serviceaccount:team:runner"
    assert set(account.groups) == {
        "system:serviceaccounts",
        "system:serviceaccounts:team",
        "system:authenticated",
    }
    assert users.service_account("team", "runner") is account
    bob = users.add("bob", token="first")
    again = users.add("bob", groups=("ops",), token="second")
    assert users.authenticate("first") is None
    assert users.authenticate("second") == again
    assert again.uid == bob.uid
    assert kubeconfig(again, "http://127.0.0.1:1")["contexts"][0]["context"]["user"] == "bob"


async def grant(api: Any, subject: dict[str, str], rules: list[dict[str, Any]], namespace: str = "") -> None:
    kind = "Role" if namespace else "ClusterRole"
    plural = f"namespaces/{namespace}/role" if namespace else "clusterrole"
    await api.ok("POST", f"{RBAC}/{plural}s", {"metadata": {"name": "r"}, "rules": rules})
    binding = {"metadata": {"name": "b"}, "roleRef": {"kind": kind, "name": "r"}, "subjects": [subject]}
    await api.ok("POST", f"{RBAC}/{plural}bindings", binding)


async def test_nothing_is_allowed_that_no_role_allows(api: Any) -> None:
    bob = api.users.add("bob")
    cases = [
        ("GET", PATH, 'configmaps is forbidden: User "bob" cannot list resource "configmaps" in API group "" '),
        (
            "GET",
            f"{PATH}/c",
            'configmaps "c" is forbidden: User "bob" cannot get resource "configmaps" in API group "" ',
        ),
    ]
    for method, path, message in cases:
        assert await api.refused(method, path, user=bob) == (403, message + 'in the namespace "default"')
    status, message = await api.refused("GET", "/apis/resource.k8s.io/v1/resourceslices?watch=1", user=bob)
    assert (status, message) == (
        403,
        'resourceslices.resource.k8s.io is forbidden: User "bob" cannot watch resource "resourceslices" in API group '
        '"resource.k8s.io" at the cluster scope',
    )
    assert (await api.refused("GET", "/metrics", user=bob)) == (403, 'forbidden: User "bob" cannot get path "/metrics"')


async def test_everybody_may_discover_and_ask_about_themselves(api: Any) -> None:
    bob = api.users.add("bob")
    for path in ("/api", "/apis", "/apis/apps/v1", "/openapi/v3", "/version"):
        await api.ok("GET", path, user=bob)
    who = await api.ok("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", {}, user=bob)
    assert who["status"]["userInfo"]["username"] == "bob"
    review = {"spec": {"resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "default"}}}
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    assert (await api.ok("POST", path, review, user=bob))["status"]["allowed"] is False
    assert (await api.ok("POST", path, review))["status"] == {"allowed": True}
    assert (await api.refused("POST", path, {"spec": {}}, user=bob))[0] == 422


async def test_a_cluster_role(api: Any) -> None:
    bob = api.users.add("bob")
    await grant(
        api, {"kind": "User", "name": "bob"}, [{"verbs": ["get", "list"], "apiGroups": [""], "resources": ["*"]}]
    )
    await api.ok("GET", "/api/v1/pods", user=bob)
    assert (await api.refused("DELETE", "/api/v1/namespaces/default/pods/p", user=bob))[0] == 403
    assert (await api.refused("GET", "/apis/apps/v1/deployments", user=bob))[0] == 403


async def test_a_role_counts_in_its_namespace_only(api: Any) -> None:
    ops = api.users.add("olga", groups=("ops",))
    rules = [{"verbs": ["*"], "apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["c"]}]
    await grant(api, {"kind": "Group", "name": "ops"}, rules, "default")
    await api.ok("POST", PATH, {"metadata": {"name": "c"}})
    await api.ok("GET", f"{PATH}/c", user=ops)
    assert (await api.refused("GET", f"{PATH}/d", user=ops))[0] == 403
    assert (await api.refused("GET", PATH, user=ops))[0] == 403
    assert (await api.refused("GET", "/api/v1/namespaces/kube-system/configmaps/c", user=ops))[0] == 403


async def test_subresources_and_service_accounts(api: Any) -> None:
    account = api.users.service_account("default", "runner")
    rules = [{"verbs": ["create"], "apiGroups": [""], "resources": ["pods/eviction"]}]
    await grant(api, {"kind": "ServiceAccount", "name": "runner", "namespace": "default"}, rules)
    eviction = {"metadata": {"name": "p"}}
    path = "/api/v1/namespaces/default/pods"
    assert (await api.refused("POST", f"{path}/p/eviction", eviction, user=account))[0] == 404
    refused = await api.refused("POST", path, {"metadata": {"name": "p"}}, user=account)
    assert refused[0] == 403
    assert 'cannot create resource "pods"' in refused[1]


async def test_paths_that_are_no_resource(api: Any) -> None:
    bob = api.users.add("bob")
    await grant(api, {"kind": "User", "name": "bob"}, [{"verbs": ["get"], "nonResourceURLs": ["/metrics"]}])
    assert (await api.refused("GET", "/metrics", user=bob))[0] == 404


async def test_impersonation_needs_the_right(api: Any) -> None:
    bob = api.users.add("bob")
    whoami = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    seen = await api.ok("POST", whoami, {}, headers={"Impersonate-User": "eve", "Impersonate-Group": "ops"})
    assert seen["status"]["userInfo"]["username"] == "eve"
    assert seen["status"]["userInfo"]["groups"] == ["ops", "system:authenticated"]
    refused = await api.refused("POST", whoami, {}, user=bob, headers={"Impersonate-User": "eve"})
    assert refused == (
        403,
        'users "eve" is forbidden: User "bob" cannot impersonate resource "users" in API group "" at the cluster scope',
    )


async def policy(api: Any, spec: dict[str, Any], **binding: Any) -> None:
    rules = [{"apiGroups": [""], "apiVersions": ["*"], "operations": ["CREATE", "UPDATE"], "resources": ["configmaps"]}]
    body = {"matchConstraints": {"resourceRules": rules}, **spec}
    await api.ok("POST", f"{ADMISSION}/validatingadmissionpolicies", {"metadata": {"name": "p"}, "spec": body})
    bound = {"policyName": "p", "validationActions": ["Deny"], **binding}
    path = f"{ADMISSION}/validatingadmissionpolicybindings"
    await api.ok("POST", path, {"metadata": {"name": "b"}, "spec": bound})


def config(name: str = "c", **data: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "data": data}


async def test_a_policy_denies_in_upstreams_words(api: Any) -> None:
    await policy(
        api,
        {
            "variables": [
                {"name": "who", "expression": "request.userInfo.username"},
                {"name": "own", "expression": "object.data.owner == variables.who"},
            ],
            "validations": [
                {"expression": "variables.own", "message": "only for yourself", "reason": "Forbidden"},
                {"expression": "object.data.size == '1'"},
            ],
        },
    )
    await api.ok("POST", PATH, config(owner="admin", size="1"))
    status, answer = await api.ask("POST", PATH, config("d", owner="eve", size="1"))
    assert (status, answer["reason"]) == (403, "Forbidden")
    denied = "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: only for yourself"
    assert answer["message"] == f'configmaps "d" is forbidden: {denied}'
    status, answer = await api.ask("POST", PATH, config("d", owner="admin", size="2"))
    assert (status, answer["reason"]) == (422, "Invalid")
    assert answer["message"].endswith("denied request: failed expression: object.data.size == '1'")
    merge = {"content_type": "application/merge-patch+json"}
    assert (await api.ask("PATCH", f"{PATH}/c", {"data": {"owner": "eve"}}, **merge))[0] == 403
    # Not matched: another resource, another operation.
    await api.ok("POST", "/api/v1/namespaces/default/secrets", {"metadata": {"name": "s"}})
    await api.ok("DELETE", f"{PATH}/c")


async def test_old_and_new_object_and_conditions(api: Any) -> None:
    await policy(
        api,
        {
            "matchConditions": [{"name": "not-ops", "expression": "!('ops' in request.userInfo.groups)"}],
            "validations": [
                {
                    "expression": "request.operation == 'CREATE' || object.data.k == oldObject.data.k",
                    "messageExpression": "'k was ' + oldObject.data.k",
                }
            ],
        },
    )
    ops = api.users.add("olga", groups=("ops", "system:masters"))
    merge = {"content_type": "application/merge-patch+json"}
    await api.ok("POST", PATH, config(k="1"))
    status, message = await api.refused("PATCH", f"{PATH}/c", {"data": {"k": "2"}}, **merge)
    assert status == 422
    assert message.endswith("denied request: k was 1")
    await api.ok("PATCH", f"{PATH}/c", {"data": {"k": "2"}}, user=ops, **merge)


@pytest.mark.parametrize(("failure", "status"), [("Fail", 422), ("Ignore", 201)])
async def test_an_expression_that_fails(api: Any, failure: str, status: int) -> None:
    await policy(api, {"failurePolicy": failure, "validations": [{"expression": "object.nope == 1"}]})
    assert (await api.ask("POST", PATH, config()))[0] == status


async def test_a_binding_that_only_warns(api: Any) -> None:
    await policy(api, {"validations": [{"expression": "false", "message": "careful"}]}, validationActions=["Warn"])
    status, _, headers = await api.raw("POST", PATH, config())
    assert status == 201
    assert "with binding 'b': careful" in headers["Warning"]


async def test_bindings_match_by_resource_and_selector(api: Any) -> None:
    never = {"validations": [{"expression": "false"}]}
    await policy(api, never, matchResources={"objectSelector": {"matchLabels": {"guarded": "yes"}}})
    await api.ok("POST", PATH, config("free"))
    body = config("guarded")
    body["metadata"]["labels"] = {"guarded": "yes"}
    assert (await api.refused("POST", PATH, body))[0] == 422


async def test_parameters(api: Any) -> None:
    await policy(
        api,
        {
            "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
            "validations": [{"expression": "object.metadata.name != params.data.forbidden"}],
        },
        paramRef={"name": "limits", "namespace": "kube-system", "parameterNotFoundAction": "Deny"},
    )
    status, message = await api.refused("POST", PATH, config("x"))
    assert status == 422
    assert "no params found for policy binding" in message
    api.store.create(
        "configmaps", {"metadata": {"name": "limits", "namespace": "kube-system"}, "data": {"forbidden": "x"}}
    )
    assert (await api.refused("POST", PATH, config("x")))[0] == 422
    await api.ok("POST", PATH, config("y"))


async def test_a_policy_that_does_not_compile_is_refused(api: Any) -> None:
    spec = {
        "matchConstraints": {"resourceRules": [{"resources": ["pods"], "operations": ["*"]}]},
        "validations": [{"expression": "object.("}],
    }
    path = f"{ADMISSION}/validatingadmissionpolicies"
    status, message = await api.refused("POST", path, {"metadata": {"name": "p"}, "spec": spec})
    assert status == 422
    assert "spec.validations[0].expression: Invalid value" in message
    assert "compilation failed: Syntax error" in message
