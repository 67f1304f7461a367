"""Who acts is named with where its process id means something."""

import os

from schemas.registry.database import holder
from schemas.registry.leases import Lease


def lease(who: str) -> Lease:
    return Lease("x", who, 1, "", 0, 0)


def test_only_a_process_of_this_very_place_can_be_known_to_have_ended():
    me = holder()
    assert me.endswith(f":{os.getpid()}")
    assert not lease(me).ended
    place = me.rpartition(":")[0]
    assert lease(f"{place}:999999999").ended
    assert not lease(f"{place.replace('@', '@other-')}:999999999").ended
    assert not lease(f"{place}-9:999999999").ended  # the same host's name in another container
    assert not lease("").ended
