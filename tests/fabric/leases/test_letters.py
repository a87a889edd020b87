"""What is written about leases, given to a real mail server: once, to the right people, in spite of its moods."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from accounts.models import Role, Tenant, User
from fabric.inventory.models import Chassis, Device, Drawer, Slot
from fabric.leases.emails import letters_send
from fabric.leases.ends import lease_extend, lease_extension_request
from fabric.leases.lifecycle import leases_process
from fabric.leases.models import Activity, Lease, Letter
from fabric.leases.rules import RequestedParts, format_duration
from fabric.leases.services import lease_approve, lease_give, lease_request
from fabric.leases.usage import activity_record
from tests.fabric.leases.leasing import fresh, pass_time, story
from tests.smtp_sink import SmtpSink

pytestmark = pytest.mark.django_db(transaction=True)
DAY = timedelta(days=1)


@pytest.fixture
def sink(settings: Any) -> Iterator[SmtpSink]:
    """A mail server, and a site that knows it."""
    with SmtpSink() as sink:
        settings.EMAIL_IS_SENT = True
        settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
        settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", sink.port
        yield sink


@pytest.fixture
def gpu(transactional_db: None) -> Device:
    """A device of nobody."""
    # Switched off: nobody asks it, and it is as its rows say.
    chassis = Chassis.objects.create(name="falcon-1", url="https://127.0.0.1:1", enabled=False)
    drawer = Drawer.objects.create(chassis=chassis, uri="/d", name="Drawer 1", number=1)
    slot = Slot.objects.create(chassis=chassis, uri="/s", name="Slot 1", drawer=drawer, number=1)
    return Device.objects.create(chassis=chassis, uri="/g", name="V100", kind="gpu", slot=slot)


@pytest.fixture
def ada(administrator: User) -> User:
    """The administrator, who has an address."""
    administrator.email = "ada@site.example"
    administrator.save()
    return administrator


@pytest.fixture
def bob(member: User) -> User:
    """The member, who has one too."""
    member.email = "bob@vision.example"
    member.save()
    return member


def given(ada: User, tenant: Tenant, gpu: Device, *, days: float) -> Lease:
    end = timezone.now() + timedelta(days=days)
    return lease_give(person=ada, tenant=tenant, things=[gpu], starts_at=None, ends_at=end)


def test_a_warning_goes_out_at_each_threshold_once(
    sink: SmtpSink, ada: User, bob: User, tenant: Tenant, gpu: Device
) -> None:
    lease = given(ada, tenant, gpu, days=30)
    leases_process()
    assert sink.got == []
    for days, words in ((24, "6 days"), (5.5, "12 hours"), (0.49, "14 minutes")):
        pass_time(lease, days=days)
        for _ in range(3):
            leases_process()
        subject = f"Lease {lease.pk} of Vision group ends in {words}"
        assert sink.subjects[-2:] == [("ada@site.example", subject), ("bob@vision.example", subject)]
    assert len(sink.got) == 6
    assert f"/leases/{lease.pk}/" in sink.body()
    assert "V100 (falcon-1 Drawer 1 Slot 1)" in sink.body()
    assert sum(line.startswith("Warned") for line in story(lease)) == 3


def test_of_warnings_that_were_missed_only_the_last_is_given(
    sink: SmtpSink, ada: User, bob: User, tenant: Tenant, gpu: Device
) -> None:
    lease = given(ada, tenant, gpu, days=30)
    pass_time(lease, days=29.99)
    leases_process()
    assert len(sink.got) == 2
    assert fresh(lease).warned_seconds == 3600


def test_another_end_is_warned_of_anew(sink: SmtpSink, ada: User, bob: User, tenant: Tenant, gpu: Device) -> None:
    lease = pass_time(given(ada, tenant, gpu, days=30), days=29.5)
    leases_process()
    lease_extend(person=ada, lease=lease, ends_at=timezone.now() + timedelta(days=6))
    sink.got.clear()
    leases_process()
    assert [subject for _, subject in sink.subjects if "ends in" in subject] == [
        f"Lease {lease.pk} of Vision group ends in 6 days"
    ] * 2


def test_a_short_lease_is_not_warned_of_days_before_its_end(
    sink: SmtpSink, ada: User, bob: User, tenant: Tenant, gpu: Device
) -> None:
    lease = given(ada, tenant, gpu, days=0.1)
    leases_process()
    assert (sink.got, fresh(lease).warned_seconds) == ([], None)


def test_each_step_is_told_to_those_whom_it_concerns(
    sink: SmtpSink, ada: User, bob: User, viewer: User, gpu: Device
) -> None:
    end = timezone.now() + DAY
    lease = lease_request(
        person=bob, wishes=[RequestedParts("gpu", 1)], starts_at=None, ends_at=end, note="For the paper"
    )
    letters_send()
    assert sink.subjects == [("ada@site.example", f"Lease {lease.pk} of Vision group waits for your decision")]
    assert "For the paper" in sink.body()
    lease_approve(person=ada, lease=lease, things=[gpu], starts_at=None, ends_at=end)
    lease_extension_request(person=bob, lease=lease, ends_at=end + DAY)
    letters_send()
    assert [to for to, _ in sink.subjects[1:]] == ["bob@vision.example", "ada@site.example"]
    lease_extend(person=ada, lease=lease, ends_at=end + DAY)
    letters_send()
    assert sink.subjects[-1] == ("bob@vision.example", f"Lease {lease.pk} of Vision group has another end")
    pass_time(lease, days=3)
    leases_process()
    assert sink.subjects[-1] == ("bob@vision.example", f"Lease {lease.pk} of Vision group has ended")


def test_a_server_that_is_away_is_asked_again_and_nothing_is_sent_twice(
    sink: SmtpSink, ada: User, bob: User, tenant: Tenant, gpu: Device
) -> None:
    for mood in ("hangs up", "full"):
        lease = pass_time(given(ada, tenant, gpu, days=30), days=29)
        sink.mood = mood
        leases_process()
        assert sink.got == []
        assert Letter.objects.filter(lease=lease).exclude(error="").exists()
        sink.mood = "well"
        leases_process()  # what was tried is held for two minutes
        Letter.objects.filter(claimed_at__isnull=False).update(claimed_at=None)
        leases_process()
        leases_process()
        assert sorted(to for to, subject in sink.subjects if f"Lease {lease.pk} " in subject) == [
            "ada@site.example", "bob@vision.example",
        ]  # fmt: skip
        sink.got.clear()
        Lease.objects.update(state="ended")
        Device.objects.update(tenant=None)
        lease.items.update(released_at=timezone.now())


def test_an_address_that_is_refused_does_not_hold_up_the_others(
    sink: SmtpSink, ada: User, bob: User, tenant: Tenant, gpu: Device
) -> None:
    pass_time(given(ada, tenant, gpu, days=30), days=29)
    sink.mood = "refuses"
    leases_process()
    errors = set(Letter.objects.values_list("error", flat=True))
    assert errors == {"The mail server refused the address: 550 no such mailbox"}
    Letter.objects.update(claimed_at=None)
    sink.mood = "well"
    leases_process()
    assert sink.got == []  # for good: it stays wrong


def test_without_a_mail_server_nothing_is_kept_to_be_sent_later(
    ada: User, bob: User, tenant: Tenant, gpu: Device
) -> None:
    lease = pass_time(given(ada, tenant, gpu, days=30), days=29)
    leases_process()
    assert not Letter.objects.exists()
    assert fresh(lease).warned_seconds == 86400  # the pages say it all the same


def test_news_of_yesterday_are_none(sink: SmtpSink, ada: User, bob: User, tenant: Tenant, gpu: Device) -> None:
    pass_time(given(ada, tenant, gpu, days=30), days=29)
    sink.mood = "hangs up"
    leases_process()
    sink.mood = "well"
    Letter.objects.update(created_at=timezone.now() - timedelta(hours=25), claimed_at=None)
    leases_process()
    assert sink.got == []


def test_a_name_cannot_add_a_header(sink: SmtpSink, ada: User, bob: User, tenant: Tenant, gpu: Device) -> None:
    Tenant.objects.filter(pk=tenant.pk).update(name="Vision\r\nBcc: all@example.com")
    tenant.refresh_from_db()
    pass_time(given(ada, tenant, gpu, days=30), days=29)
    leases_process()
    assert len(sink.got) == 2
    assert all(message["Bcc"] is None for _, message in sink.got)


def test_people_who_may_not_sign_in_are_written_nothing(
    sink: SmtpSink, ada: User, bob: User, tenant: Tenant, gpu: Device
) -> None:
    gone = User.objects.create_user("gone", "gone@vision.example", "x", role=Role.USER, tenant=tenant, is_active=False)
    pass_time(given(ada, tenant, gpu, days=30), days=29)
    leases_process()
    assert gone.email not in [to for to, _ in sink.subjects]


def quiet(gpu: Device, *, hours: float, gap: bool = False) -> None:
    """Let a device have been watched, and quiet, for so long; with a gap in the middle."""
    now = timezone.now()
    Activity.objects.all().delete()
    activity_record(at=now - timedelta(hours=hours), active={gpu.pk: False})
    if not gap:
        Activity.objects.update(measured_at=now)
    activity_record(at=now, active={gpu.pk: False})


def test_what_is_held_and_not_used_is_told_once_and_after_use_once_more(
    sink: SmtpSink, ada: User, bob: User, tenant: Tenant, gpu: Device
) -> None:
    lease = pass_time(given(ada, tenant, gpu, days=300), days=30)
    quiet(gpu, hours=23)
    leases_process()
    assert sink.got == []
    quiet(gpu, hours=25)
    leases_process()
    leases_process()
    subject = f"Lease {lease.pk} of Vision group has idle devices"
    assert sink.subjects == [("ada@site.example", subject), ("bob@vision.example", subject)]
    activity_record(at=timezone.now(), active={gpu.pk: True})
    leases_process()
    quiet(gpu, hours=25)
    Letter.objects.update(key="before")  # letters of the same minute are one
    leases_process()
    assert len(sink.got) == 4


@pytest.mark.parametrize("why", ["a gap", "held for an hour", "not measured any more"])
def test_what_is_not_known_to_be_quiet_is_not_called_idle(
    sink: SmtpSink, ada: User, tenant: Tenant, gpu: Device, why: str
) -> None:
    lease = given(ada, tenant, gpu, days=300)
    pass_time(lease, hours=1 if why == "held for an hour" else 900)
    quiet(gpu, hours=48, gap=why == "a gap")
    if why == "not measured any more":
        Activity.objects.update(measured_at=timezone.now() - timedelta(hours=1))
    leases_process()
    assert sink.got == []


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(7 * 86400, "7 days"), (86390, "1 day"), (3600, "1 hour"), (5400, "2 hours"), (59, "1 minute"), (0.2, "a moment")],
)
def test_times_are_said_in_their_largest_unit(seconds: float, words: str) -> None:
    assert format_duration(seconds) == words
