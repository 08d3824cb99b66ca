"""The store: an SQLite file with the streams, their logs, their last snapshots, and access tokens."""

from windvane.service.store.database import READ_ERRORS as READ_ERRORS
from windvane.service.store.database import DamageError as DamageError
from windvane.service.store.database import MisplacedError as MisplacedError
from windvane.service.store.database import Snapshot as Snapshot
from windvane.service.store.database import SnapshotError as SnapshotError
from windvane.service.store.database import StoreError as StoreError
from windvane.service.store.database import StreamRow as StreamRow
from windvane.service.store.database import Token as Token
from windvane.service.store.database import is_damage as is_damage
from windvane.service.store.database import try_read as try_read
from windvane.service.store.events import CLOSED as CLOSED
from windvane.service.store.events import DECIDED as DECIDED
from windvane.service.store.events import KINDS as KINDS
from windvane.service.store.events import LATE as LATE
from windvane.service.store.events import REWARD_PART as REWARD_PART
from windvane.service.store.events import REWARDED as REWARDED
from windvane.service.store.events import UNREADABLE as UNREADABLE
from windvane.service.store.events import Event as Event
from windvane.service.store.events import UnreadableEventError as UnreadableEventError
from windvane.service.store.events import check_event as check_event
from windvane.service.store.store import Store as Store
