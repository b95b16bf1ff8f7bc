"""A notebook with a policy of its own in a cell: replayed, compared, drawn; executed in a kernel."""

from typing import Any

import nbformat
from nbclient import NotebookClient

CELLS = (
    """
from dataclasses import dataclass
import simlab
from simlab import Draft, DraftTree, Needs, Stateless
""",
    """
LEAST = 1

@dataclass(frozen=True)
class Confident(Stateless):
    "The chain, as far as its tokens are likely."
    budget: int = 7

    @property
    def needs(self) -> Needs:
        return Needs(top_k=1)

    def select(self, draft: Draft, state: None = None) -> DraftTree:
        return DraftTree.chain(draft.root_token, draft.drafted().top_tokens(max(self.budget, LEAST)))
""",
    "table = simlab.replay(policies=[Confident(budget=4), Confident, 'ddtree:budget=8'], limit=4)\ntable",
    "table.frame.filter(policy='Confident:budget=4')['settings'].struct.field('budget').to_list()",
    "simlab.compare(table, [Confident(budget=4), 'chain']).plot()",
    "table.plot('depths')",
    "simlab.list_policies('chain')",
    "before = simlab.policies.parsing.parse.parse_policies(Confident)[0].policy_id\nbefore",
    "LEAST = 2\nsimlab.policies.parsing.parse.parse_policies(Confident)[0].policy_id != before",
    """
try:
    simlab.replay(policies=[3])
except simlab.SimlabError as error:
    print(error)
""",
)


def outputs(cell: Any) -> dict[str, Any]:  # noqa: ANN401 - nbformat carries no types
    found: dict[str, Any] = {}
    for output in cell.outputs:
        found |= output.get("data", {}) or {"text/plain": output.get("text", "")}
    return found


def test_a_policy_of_a_cell() -> None:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    shown = [outputs(cell) for cell in notebook.cells]
    assert "Confident:budget=4" in shown[2]["text/html"]
    assert "Confident</td>" in shown[2]["text/html"]
    assert shown[3]["text/plain"] == "[4]"
    for index, name in ((4, "significant"), (5, "Confident")):
        figure = shown[index]["application/vnd.plotly.v1+json"]
        assert any(name in str(trace.get("name")) for trace in figure["data"])
    assert "<pre>chain" in shown[6]["text/html"]
    assert len(shown[7]["text/plain"].strip("'")) == 16
    assert shown[8]["text/plain"] == "True"
    assert "got 3, which is of type int" in shown[9]["text/plain"]
