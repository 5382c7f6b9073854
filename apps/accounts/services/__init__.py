"""Writes of people, their tokens and views, and of teams as the catalog names them."""

from apps.accounts.domain.identity import ActingParty
from apps.accounts.services.administration import (
    Manager,
    PlaceRefused,
    add_person,
    give_place,
    give_role,
    shut_out,
    switch_person,
    take_place,
)
from apps.accounts.services.admission import AdmissionRefused, Identity, admit, dismiss
from apps.accounts.services.audit import (
    NoHead,
    audit_head,
    from_command,
    note,
    read_head,
    record,
    verify_audit,
    written_head,
)
from apps.accounts.services.people import (
    Account,
    PersonChanges,
    change_person,
    check_new_person,
    end_sessions,
    make_person,
    note_command,
    person_exists,
    set_own_password,
)
from apps.accounts.services.saved_views import (
    LONGEST_VIEW_NAME,
    MOST_VIEWS,
    ViewRefused,
    delete_view,
    save_view,
)
from apps.accounts.services.teams import (
    UNASSIGNED,
    LeadRecord,
    TeamRecord,
    ensure_builtin,
    loaded_leads,
    loaded_teams,
    lock_catalog,
    team_ids,
    write_leads,
    write_teams,
)
from apps.accounts.services.tokens import (
    LONGEST_DAYS,
    USUAL_DAYS,
    IssuedToken,
    TokenRefused,
    add_token,
    digest_of,
    issue_token,
    note_use,
    revoke_all,
    revoke_named,
    revoke_token,
)
