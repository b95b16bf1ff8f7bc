"""``simlab policies``: what can be replayed."""

import argparse
import json

from simlab.cli.options import add_json
from simlab.cli.parser import Parser
from simlab.studies.policies import list_policies

DETAILS = """Without NAME all of them; with one or more, these alone and all that their classes say.

  simlab policies ddtree caddtree
  simlab policies path/to/mine.py:MyPolicy"""


def add_arguments(parser: Parser) -> None:
    """Declare the options of the command."""
    parser.add_argument("names", nargs="*", metavar="NAME", help="a policy, or path/to/mine.py:MyPolicy")
    form = parser.add_mutually_exclusive_group()
    add_json(form)
    form.add_argument("--markdown", action="store_true", help="print the page docs/reference/policies.md")


def run(options: argparse.Namespace) -> int:
    """List the policies that were named, or all."""
    policies = list_policies(*options.names)
    if options.json:
        print(json.dumps(policies.to_json(), indent=1))
    elif options.markdown:
        print(policies.markdown(), end="")
    else:
        print(policies.text())
    return 0
