"""The caller's own workloads: rows and the endpoint."""

from django.conf import settings
from django.http.response import HttpResponseBase
from rest_framework import serializers
from rest_framework.exceptions import NotFound
from rest_framework.response import Response

from apps.accounts.permissions import visibility_of_led
from apps.api import parameters
from apps.api.endpoints import ListRequest, ShortList, caller_of, list_endpoint
from apps.api.row_serializers import cells_of, records, serializer_of
from apps.clusters import selectors as clusters
from apps.costs.selectors import PersonWorkloadRow, person_workloads


class MyWorkloadsParams(parameters.WindowParams, parameters.CsvParams):
    """Parameters of `my/workloads`."""

    refusals = {404: "The portal does not keep who is behind a pod, or you may not see them."}

    person = serializers.CharField(
        required=False,
        max_length=253,
        help_text="A person as labels of pods name them; for leads, of the teams that they lead.",
    )


@list_endpoint(
    "my-workloads",
    MyWorkloadsParams,
    serializer_of(PersonWorkloadRow),
    beside={
        "running_gpus": serializers.FloatField(
            help_text="GPU-equivalents that all pods hold now, over all clusters."
        ),
        "cap_gpus": serializers.FloatField(
            allow_null=True, help_text="What one person may hold; null without a cap."
        ),
        "over_cap": serializers.BooleanField(help_text="Whether that is more than the cap."),
    },
)
def my_workloads(of: ListRequest) -> HttpResponseBase:
    """Workloads whose pods name you as their user: allocated, pending, unused.

    What the caller has allocated, pending and unused.
    """
    user = caller_of(of.request)
    if settings.PEOPLE is None:
        raise NotFound("The portal does not keep who is behind a pod.")
    people, visibility = clusters.people_of(user), of.visibility
    named = of.query.get("person", "").strip().lower()
    if named and named not in people:
        visibility = visibility_of_led(user)
        # Without a team to lead, a user learns nothing, not even whether such a person exists.
        if not visibility.team_ids:
            raise NotFound("Person not found, or you may not see them.")
        people = clusters.names_of(named)
    work = person_workloads(
        of.window,
        people=people,
        reader=user,
        visibility=visibility,
        now=of.now,
        zone=of.zone,
    )
    rows: ShortList[PersonWorkloadRow] = ShortList(
        "my-workloads",
        lambda row: "\n".join((row.cluster, row.namespace, row.workload, row.team, row.tier)),
        records,
    )
    response = of.answer(rows, work.rows, cells_of(PersonWorkloadRow))
    if isinstance(response, Response):
        response.data["running_gpus"] = work.running_gpus
        response.data["cap_gpus"] = settings.PEOPLE.cap_gpus
        response.data["over_cap"] = work.is_over_cap
    return response
