"""Exporters described: kept, compared, and told in words."""

import json

import pytest

from apps.accounts.domain.structs import replace
from apps.clusters.domain.devices.exporter_profile import (
    VENDOR_LIMITS,
    ExporterProfile,
    Family,
    Generation,
    JobProfile,
    VirtualGpus,
    WorkloadLabels,
    differences,
    with_earlier,
)

JOB = JobProfile(
    job="dcgm",
    family=Family.DCGM,
    generation=Generation.HOSTNAME_UPPER,
    workload_labels=WorkloadLabels.EXPORTED,
    node_labels=("Hostname",),
    virtual_gpus=VirtualGpus.COPIES,
    activity_metrics=(("A100", ("PROF",)), ("T4", ("UTIL",))),
    memory_metric="FB_USED",
    energy_metric="ENERGY",
    label_names=("Hostname", "UUID"),
)
PROFILE = ExporterProfile((JOB,))


def with_changes(**changes: object) -> ExporterProfile:
    return ExporterProfile((replace(JOB, **changes),))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "profile",
    [
        ExporterProfile(),
        PROFILE,
        with_changes(label_names=None),
        ExporterProfile((JOB, JobProfile("amd", Family.AMD))),
    ],
    ids=["empty", "full", "labels not told", "two families"],
)
def test_a_profile_survives_json(profile: ExporterProfile) -> None:
    stored = json.loads(json.dumps(profile.as_json()))
    assert ExporterProfile.from_json(stored) == profile


def test_a_word_nobody_wrote_is_refused() -> None:
    stored = PROFILE.as_json()
    stored["jobs"][0]["family"] = "abacus"
    with pytest.raises(ValueError, match="abacus"):
        ExporterProfile.from_json(stored)


def test_families_are_named_once() -> None:
    profile = ExporterProfile((JOB, replace(JOB, job="other"), JobProfile("amd", Family.AMD)))
    assert profile.families == (Family.DCGM, Family.AMD)


def test_equal_profiles_do_not_differ() -> None:
    assert differences(PROFILE, PROFILE) == []


def test_a_night_without_pods_is_no_change() -> None:
    night = ExporterProfile((JobProfile("dcgm", Family.DCGM),))
    assert differences(PROFILE, replace(night, jobs=(replace(
        night.jobs[0], memory_metric="FB_USED", energy_metric="ENERGY"),))) == []  # fmt: skip
    assert with_earlier(PROFILE, night) == PROFILE


def test_what_is_remembered_is_what_was_seen_last() -> None:
    newer = with_changes(
        generation=Generation.HOSTNAME_LOWER,
        workload_labels=WorkloadLabels.PLAIN,
        virtual_gpus=VirtualGpus.BY_PROCESS,
        activity_metrics=(("T4", ("PROF",)),),
    )
    (job,) = with_earlier(PROFILE, newer).jobs
    assert job.activity_metrics == (("A100", ("PROF",)), ("T4", ("PROF",)))
    assert job.generation is Generation.HOSTNAME_LOWER
    assert job.virtual_gpus is VirtualGpus.BY_PROCESS
    assert with_earlier(ExporterProfile(), newer) == newer


@pytest.mark.parametrize(
    ("after", "words"),
    [
        (with_changes(generation=Generation.HOSTNAME_LOWER), ["is 4.8.3 or newer where it was"]),
        (with_changes(workload_labels=WorkloadLabels.PLAIN), ["named by pod, before by exported_"]),
        (with_changes(node_labels=("hostname",)), ["nodes are named by hostname, before by Host"]),
        (with_changes(virtual_gpus=VirtualGpus.BY_PROCESS), ["values by process"]),
        (with_changes(mig=True), ["MIG instances appeared"]),
        (with_changes(dra_labels=True), ["resource claims appeared"]),
        (with_changes(pod_uid=True), ["UIDs appeared"]),
        (with_changes(rescaled=("UTIL",)), ["unit than the exporter's own: UTIL, before nothing"]),
        (with_changes(activity_metrics=(("A100", ("UTIL",)),)), ["A100 is read from UTIL"]),
        (with_changes(activity_metrics=(("H100", ("UTIL",)),)), []),
        (with_changes(energy_metric="POWER"), ["energy is read from POWER, before from ENERGY"]),
        (with_changes(memory_metric=""), []),
        (ExporterProfile(), ["no longer exports devices"]),
        (ExporterProfile((JOB, replace(JOB, job="new"))), ["new exports devices now"]),
    ],
)
def test_a_change_is_said_with_what_it_means(after: ExporterProfile, words: list[str]) -> None:
    found = differences(PROFILE, after)
    assert len(found) == len(words)
    for text, expected in zip(found, words, strict=True):
        assert expected in text
        assert text.endswith(".")


def test_what_appears_for_the_first_time_is_named_against_nothing() -> None:
    blank = ExporterProfile((JobProfile("dcgm", Family.DCGM),))
    text = " ".join(differences(blank, PROFILE))
    assert "memory is read from FB_USED, before from nothing" in text
    assert "nodes are named" not in text


def test_every_family_has_its_limits_told_in_sentences() -> None:
    assert set(VENDOR_LIMITS) == set(Family)
    assert all(text.endswith(".") for limits in VENDOR_LIMITS.values() for text in limits)
    assert VENDOR_LIMITS[Family.AMD]
    assert VENDOR_LIMITS[Family.INTEL]
