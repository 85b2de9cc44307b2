"""Intake: what an adapter received becomes a row of the ledger, with rights, or a sentence for its sender."""

from clawd.intake.commands import Command as Command
from clawd.intake.commands import CommandContext as CommandContext
from clawd.intake.commands import Done as Done
from clawd.intake.commands import Filed as Filed
from clawd.intake.commands import Press as Press
from clawd.intake.commands import parse as parse
from clawd.intake.decision import Rules as Rules
from clawd.intake.intake import Intake as Intake
from clawd.people.bindings import Place as Place
