"""What ``simlab optimize`` chose, as a confirmation runs it, and whether that was on the very texts that are run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from simlab.policies.parsing.parse import NamedPolicy
from simlab.studies.inputs.prices import Prices
from simlab.traces.artefacts.optimum import Optimum, PromptSource, Scalar
from simlab.traces.format.frames import SequenceRecord

REFERENCES = ("ar", "chain")
"""Names of policies that always run, whatever was chosen."""

_BY = {
    "tokens_per_s": "tokens/s",
    "acceptance_length": "acceptance length",
    "worst_case": "the worst of several latency profiles",
}


@dataclass(frozen=True, slots=True)
class PriorChoice:
    """What was chosen beforehand, beside the trace whose prompts are run.

    Attributes:
        path: of the file.
        policy_id: of the best policy as it is run; None where it is not run.
        in_sample: labels of those that were chosen on prompts that are run; empty: on others.
    """

    path: Path
    optimum: Optimum
    policy_id: str | None
    in_sample: tuple[str, ...]

    def lines(self, prices: Prices, batch: int) -> list[tuple[str, str]]:
        """Lines of the heading, each with its name: what was chosen where, and what was predicted of it.

        Args:
            prices: at which the confirmation predicts.
            batch: texts at a time; a choice is of single texts.
        """
        made = self.optimum
        best = f"{made.best.policy}, best of {made.searched} by {_BY[made.objective]}"
        lines = [
            ("chosen", f"{best}, on {_prompts_text(made.chosen_on)}"),
            ("optimize", f"{made.verdict.rstrip('.')}; on {_prompts_text(made.reported_on)}{self._predicted()}"),
        ]
        if batch != 1:
            lines.append(("", f"chosen for one text at a time, and run here {batch} at a time"))
        if self.policy_id != made.best.policy_id:
            lines.append(
                ("", "the best policy here reads another latency profile or other tables than when it was chosen")
            )
        if made.cost_ids and prices.cost_id is not None and prices.cost_id not in made.cost_ids:
            lines.append(
                (
                    "",
                    f"chosen with another latency profile (cost {', '.join(made.cost_ids)}) than this prediction",
                )
            )
        return lines

    def _predicted(self) -> str:
        """What the file predicts of the best policy on the prompts of its report; empty where it does not say."""
        row = next((row for row in self.optimum.rows if row.get("policy") == self.optimum.best.policy), {})
        speedup, tokens_per_s = row.get("evaluation_speedup"), row.get("evaluation_tokens_per_s")
        if not isinstance(speedup, float) or not isinstance(tokens_per_s, float):
            return ""
        interval, prices = (_ends(row, f"evaluation_speedup_{kind}") for kind in ("ci", "price"))
        prices = f" (prices{prices})" if prices else ""
        return f", predicted speedup {speedup:.2f}{interval}{prices}, {tokens_per_s:.1f} tokens/s"

    def note(self) -> str:
        """What to know of policies that were chosen on the texts that were run; empty where they were not."""
        if not self.in_sample:
            return ""
        return (
            f"IN SAMPLE: {', '.join(self.in_sample)}.\n"
            f"{self.path} was chosen on {self.optimum.chosen_on.prompts} prompts, and some of these are run here, so "
            "its best policy looks better than it is; confirm it on others."
        )

    def to_json(self) -> dict[str, object]:
        """The values of ``simlab confirm --json`` under ``chosen``."""
        made = self.optimum
        return {
            "policy": made.best.policy,
            "policy_id": made.best.policy_id,
            "is_winner": made.winner is not None,
            "objective": made.objective,
            "searched": made.searched,
            "verdict": made.verdict,
            "chosen_on": _prompts_json(made.chosen_on),
            "reported_on": _prompts_json(made.reported_on),
            "cost_ids": list(made.cost_ids),
            "in_sample": bool(self.in_sample),
            "rows": [dict(row) for row in made.rows],
        }


def prior_choice(
    path: Path, optimum: Optimum, records: Sequence[SequenceRecord], policies: Sequence[NamedPolicy]
) -> PriorChoice:
    """Hold a choice beside the prompts that are run, whose names tell whether it was made on any of these.

    Args:
        path: of the file.
        optimum: what is in it.
        records: texts that are run.
        policies: that are run.
    """
    best = next((policy for policy in policies if policy.policy_id == optimum.best.policy_id), None)
    best = next((policy for policy in policies if policy.label == optimum.best.policy), best)
    run = {(record.prompt.dataset, record.prompt.prompt_id) for record in records}
    is_seen = bool(run & optimum.chosen_on.names)
    labels = [policy.label for policy in policies if policy.label in optimum.run and policy.name not in REFERENCES]
    return PriorChoice(path, optimum, None if best is None else best.policy_id, tuple(labels) if is_seen else ())


def _ends(row: Mapping[str, Scalar], name: str) -> str:
    """An interval of a file's figures behind a space; empty where it is not known."""
    known = [f"{end:.2f}" for end in (row.get(f"{name}_{end}") for end in ("low", "high")) if isinstance(end, float)]
    return f" [{', '.join(known)}]" if len(known) == 2 else ""


def _prompts_text(source: PromptSource) -> str:
    """The prompts that something was read from, in words."""
    return f"{source.prompts} prompts ({', '.join(source.datasets)}; text {source.text_id})"


def _prompts_json(source: PromptSource) -> dict[str, object]:
    """The prompts that something was read from, for scripts, without their names."""
    return {name: value for name, value in source.to_json().items() if name != "names"}
