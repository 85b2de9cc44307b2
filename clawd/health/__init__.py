"""The doctor: what is wrong here, and the command that mends it. It looks at the same things as the daemon does, and
writes nothing; only `recover` does."""

from clawd.health.doctor import doctor as doctor
from clawd.health.recovery import recover as recover
