"""Pending work: parameters, rows and endpoints."""

from collections.abc import Mapping, Sequence
from functools import partial
from http import HTTPStatus
from typing import Any

from django.http.response import HttpResponseBase
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.domain.identity import TokenScope
from apps.api import parameters
from apps.api.endpoints import ListRequest, ShortList, list_endpoint, problems, visibility_in
from apps.api.parameters import NamesField, choices
from apps.api.problems import InvalidParameters
from apps.api.quota_requests import OF_BODIES, Body, ChangesView, RequestRefusal, Text
from apps.api.row_serializers import (
    RowSerializer,
    cells,
    cells_of,
    record,
    records,
    serializer_of,
)
from apps.pending import selectors as pending
from apps.pending.domain.diagnosis import Cause, Counts
from apps.pending.selectors import (
    HistoryRow,
    PendingFilters,
    PendingGrouping,
    PendingOrder,
    PendingPage,
    PendingRow,
    QueueTimeSums,
)
from apps.planning.domain.manifests.documents import ManifestError
from apps.planning.domain.measured_use import FamilyHistory
from apps.planning.domain.verdicts import Verdict
from apps.planning.services import (
    AlternativeBasis,
    PreflightRefused,
    preflight_manifest,
)
from apps.usage.domain.usage_query import RowPage

_CAUSES = [cause.value for cause in Cause]
_COUNTS = [counts.value for counts in Counts]
_GROUPS = [by.value for by in PendingGrouping]
_DEFAULT = (PendingGrouping.DAY, PendingGrouping.CAUSE)


class PendingParams(parameters.PageParams, parameters.CsvParams, parameters.PlaceParams):
    """Parameters of `pending`: the work that is pending now."""

    cause = NamesField(child=choices(_CAUSES))
    kind = NamesField(help_text="Only these kinds, as Kubernetes names them: Pod, Job, Workload.")
    order = choices(
        [order.value for order in PendingOrder],
        required=False,
        help_text="longest: longest pending first (default); most: largest request first.",
    )


class PendingHistoryParams(parameters.WindowParams, parameters.CsvParams, parameters.PlaceParams):
    """Parameters of `pending/history`."""

    group_by = NamesField(
        child=choices(_GROUPS),
        help_text="Columns to group by, in this order; day,cause unless told.",
    )
    cause = NamesField(child=choices(_CAUSES))


class PendingHistorySerializer(RowSerializer):
    """Pending GPU-hours of one group; a group's column is there when it was requested."""

    row = HistoryRow
    figures = QueueTimeSums


@list_endpoint("pending", PendingParams, serializer_of(PendingRow))
def pending_list(of: ListRequest) -> HttpResponseBase:
    """Pending workloads and their causes, of teams you see in detail.

    The work that is pending now, and its causes.
    """
    of.filters()
    order = PendingOrder(of.query.get("order", PendingOrder.LONGEST.value))

    def page_at(cursor: str | None, page_size: int) -> RowPage[PendingRow]:
        return pending.pending_now(
            of.now,
            filters=_filters(of.query),
            visibility=of.visibility,
            page=PendingPage(cursor, page_size, order),
        )

    written = (records, cells)
    return of.answer_by_page("pending", page_at, cells_of(PendingRow), written=written)


@list_endpoint("pending-history", PendingHistoryParams, PendingHistorySerializer)
def pending_history(of: ListRequest) -> HttpResponseBase:
    """Pending GPU-hours, by day and cause or other groups."""
    of.filters()
    by = tuple(PendingGrouping(name) for name in of.query.get("group_by", ())) or _DEFAULT
    rows = pending.pending_history(
        of.window,
        now=of.now,
        visibility=of.visibility,
        by=by,
        filters=_filters(of.query),
    )
    groups = tuple(one.key for one in by)
    records = [record(row, groups=groups) | record(row.sums) for row in rows]
    columns = (*cells_of(HistoryRow, groups), *cells_of(QueueTimeSums))
    shown = ShortList("pending-history", partial(_group_name, groups), list)
    return of.answer(shown, records, columns)


class PreflightBody(Body):
    """A manifest, and where it is to be submitted. Nothing is sent to the cluster."""

    cluster = Text(max_length=200)
    namespace = Text(max_length=253)
    manifest = Text(help_text="YAML or JSON, of several documents.")


class QueueTimeSerializer(serializers.Serializer[Any]):
    """Queue times in seconds: 10, 50 and 90 % are no longer."""

    p10 = serializers.FloatField()
    p50 = serializers.FloatField()
    p90 = serializers.FloatField()
    basis = serializers.ChoiceField(
        ["replay", "history"],
        help_text="replay of what runs and is pending; history of pods of like size.",
    )
    starts_now = serializers.FloatField(
        allow_null=True, help_text="How likely it starts within a minute, 0..1; null by history."
    )


class TouchedQuotaSerializer(serializers.Serializer[Any]):
    """A key of a quota or queue that the pods count in, in units of its resource."""

    namespace = serializers.CharField(help_text="Empty for queues of a whole cluster.")
    name = serializers.CharField()
    key = serializers.CharField(help_text="Of queues flavor/resource.")
    hard = serializers.FloatField(
        source="limit", help_text="The limit; of Kueue the nominal quota."
    )
    used = serializers.FloatField()
    left = serializers.FloatField(help_text="What may be had now, borrowed quota included.")
    needs = serializers.FloatField()

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        # An attribute of every field is called so.
        source = serializers.CharField(help_text="ResourceQuota, ClusterQueue or VolcanoQueue.")
        return {"source": source} | super().get_fields()


class PreflightSuggestionSerializer(serializers.Serializer[Any]):
    """A change that would let it start."""

    action = serializers.CharField()
    text = serializers.CharField(help_text="The same in words.")
    change = serializers.DictField(help_text="Its particulars, by the action.")


class QueuePositionSerializer(serializers.Serializer[Any]):
    """Where it would stand in a queue, from 1."""

    place = serializers.IntegerField(min_value=1)
    of = serializers.IntegerField(min_value=1, help_text="Itself included.")
    queue = serializers.CharField(
        help_text="A ClusterQueue; empty: pods that ask the scheduler for GPUs of the same kind."
    )


class _MeasuredDays(serializers.IntegerField):
    def get_attribute(self, instance: FamilyHistory) -> int:
        return 0 if instance.use is None else instance.use.days


class FamilySerializer(serializers.Serializer[Any]):
    """Workloads of the last 30 days of the same namespace and kind that are called alike."""

    name = serializers.CharField(help_text="As `train-*`.")
    workloads = serializers.IntegerField()
    runs = serializers.IntegerField(help_text="Runs that ended.")
    run_seconds = serializers.FloatField(
        allow_null=True, help_text="Their median, from having GPUs to the end; null without any."
    )
    gpu_model = serializers.CharField(
        source="use.gpu_model",
        allow_null=True,
        help_text="What was measured is of whole GPUs of this model.",
    )
    measured_days = _MeasuredDays()
    memory_peak_mib = serializers.FloatField(
        source="use.memory_peak_mib", allow_null=True, help_text="On any one GPU."
    )
    p95_activity = serializers.FloatField(
        source="use.p95_activity",
        allow_null=True,
        help_text="95th percentile of half-hours, 0..1; null with fewer than 7 measured days.",
    )


class AlternativeSerializer(serializers.Serializer[Any]):
    """Another request of the same pods."""

    tier = serializers.CharField()
    resource = serializers.CharField()
    units = serializers.FloatField(help_text="In each pod.")
    gpu_equivalents = serializers.FloatField(help_text="Of all pods.")
    expected_wait_seconds = QueueTimeSerializer(source="expected_wait", allow_null=True)
    cost_per_hour = serializers.CharField(allow_null=True)
    currency = serializers.CharField()
    verdict = serializers.ChoiceField([Verdict.STARTS.value, Verdict.WAITS.value])
    basis = serializers.ChoiceField(
        [one.value for one in AlternativeBasis],
        help_text="starts_now; measured_use: it costs less and holds what its family used.",
    )
    node_selector = serializers.DictField(
        child=serializers.CharField(), help_text="Labels of the nodes that it is for."
    )


class PreflightResultSerializer(serializers.Serializer[Any]):
    """The answer for pods alike of an object."""

    kind = serializers.CharField()
    name = serializers.CharField()
    role = serializers.CharField(help_text="Which pods of the object; empty where they are alike.")
    namespace = serializers.CharField()
    tier = serializers.CharField(help_text="Empty without GPUs.")
    resource = serializers.CharField()
    units = serializers.FloatField(help_text="In each pod.")
    gpu_equivalents = serializers.FloatField(help_text="Of all pods.")
    pods = serializers.IntegerField()
    could_start = serializers.IntegerField(help_text="Pods that would start now.")
    verdict = serializers.ChoiceField([one.value for one in Verdict])
    cause = serializers.CharField(help_text="As in pending; empty where it starts.")
    detail = serializers.CharField()
    explanation = serializers.CharField()
    expected_wait_seconds = QueueTimeSerializer(
        source="expected_wait",
        allow_null=True,
        help_text="Null where too few started in 30 days, and of never.",
    )
    position = QueuePositionSerializer(
        allow_null=True, help_text="Null where nothing queues, and where the queue is not known."
    )
    quotas = TouchedQuotaSerializer(many=True)
    cost_per_hour = serializers.CharField(
        allow_null=True, help_text="Of all pods; null where no price is known."
    )
    cost_per_run = serializers.CharField(
        allow_null=True, help_text="Of all pods, for the median run of the family."
    )
    currency = serializers.CharField()
    family = FamilySerializer(allow_null=True, help_text="Null where none was seen before.")
    change = PreflightSuggestionSerializer(
        allow_null=True, help_text="The smallest change that lets it start."
    )
    alternatives = AlternativeSerializer(many=True)
    unchecked = serializers.ListField(
        child=serializers.CharField(), help_text="What the portal does not know of it."
    )


class PreflightSerializer(serializers.Serializer[Any]):
    """Whether the pods of a manifest would start."""

    results = PreflightResultSerializer(many=True)
    as_of = serializers.DateTimeField(help_text="Until when the cluster was watched.")
    other_kinds = serializers.ListField(
        child=serializers.CharField(), help_text="Kinds in it of which the manifest has no pods."
    )


class PreflightView(ChangesView):
    """Whether a manifest would start; it reads, and sends nothing to a cluster."""

    # A manifest is too long for an address, so it is sent; nothing is written.
    scopes = {"POST": TokenScope.READ}

    @extend_schema(
        operation_id="preflight",
        summary="Whether the pods of a manifest would start, and what it would take.",
        request=PreflightBody,
        responses={200: PreflightSerializer}
        | problems(
            {
                **OF_BODIES,
                404: "There is no such namespace, or you may not see it.",
                422: "The manifest cannot be answered; the detail says why.",
            }
        ),
        tags=["pending"],
    )
    def post(self, request: Request) -> Response:
        body = PreflightBody.read(request.data)
        try:
            report = preflight_manifest(
                body["cluster"],
                body["namespace"],
                body["manifest"],
                now=timezone.now(),
                visibility=visibility_in(request),
            )
        except ManifestError as error:
            raise InvalidParameters({"manifest": [str(error)]}) from error
        except LookupError as error:
            raise RequestRefusal(HTTPStatus.NOT_FOUND, str(error)) from error
        except PreflightRefused as error:
            raise RequestRefusal(HTTPStatus.UNPROCESSABLE_ENTITY, str(error)) from error
        return Response(PreflightSerializer(report).data)


def _group_name(groups: Sequence[str], record: Mapping[str, Any]) -> str:
    # No name has a line break, so the joined names stay unique.
    return "\n".join(str(record[key]) for key in groups)


def _filters(query: dict[str, Any]) -> PendingFilters:
    names: dict[str, Any] = {
        name: tuple(query.get(name, ()))
        for name in PendingFilters.__struct_fields__
        # No parameters of the API: a text is of pages, and ids are of no reader.
        if name not in ("text", "workload_ids")
    }
    return PendingFilters(**names)
