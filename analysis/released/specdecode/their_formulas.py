"""Speedups by the formulas of SpecDecode-Bench/simulator, whose files print none; formulas are theirs, code is ours.

`SIMULATOR_FILE` has the formulas, `COSTS_FILE` the costs of passes. A batch is one request as often as its size. Each
text's walk begins at entry 0, although the prefill has brought the first token, and its seconds hold the prefill. The
speedup is the ratio of mean tokens per second, over a sample of requests that their seed fixes.
"""

import random
from dataclasses import dataclass

import numpy as np

from simlab.analysis.released.files import Quoted, ReleasedFiles
from simlab.analysis.released.specdecode.chain_records import DRAFTERS, EAGLE, NGRAM, ChainRecords, DatasetChains
from simlab.analysis.released.specdecode.chain_replay import PassCosts, autoregressive, round_sums, visited
from simlab.arrays import Doubles, Longs

COMBINED = "combined"
COSTS_FILE, SIMULATOR_FILE = "predictor.py", "simulator.py"
_NUMBER = r"([0-9.]+(?:[eE][+-]?[0-9]+)?)"


@dataclass(frozen=True, slots=True)
class TheirSettings:
    """What their files fix.

    Attributes:
        costs: of passes.
        seed: of the sample and of the coins.
        sampled: requests in the sample.
        match_probs: by dataset, how probable a match of n-grams is where nothing was accepted.
    """

    costs: PassCosts
    seed: int
    sampled: int
    match_probs: dict[str, Quoted]


@dataclass(frozen=True, slots=True)
class TheirSpeedup:
    """A speedup by their formulas, and by two other means of the same seconds.

    Attributes:
        value: as their program writes it, unrounded.
        pooled: seconds of autoregressive decoding over those of the chain, both summed over requests.
        decode_only: the same without the prefill.
    """

    value: float
    pooled: float
    decode_only: float


def read_settings(files: ReleasedFiles, datasets: tuple[str, ...]) -> TheirSettings:
    """Read what they fix from their files.

    Raises:
        SimlabError: a number is not found.
    """
    names = (
        "target_c_kv",
        "target_c_compute",
        "target_c_fixed",
        "overhead_constant_per_step",
        "draft_c_kv",
        "draft_c_num_spec_tokens",
        "draft_c_fixed",
        "ngram_draft_percentage",
    )
    found = [files.quoted_pattern(COSTS_FILE, rf"^\s*{name}\s*=\s*{_NUMBER}").value for name in names]
    return TheirSettings(
        PassCosts(*found),
        int(files.quoted_pattern(SIMULATOR_FILE, rf"^SEED\s*=\s*{_NUMBER}").value),
        int(files.quoted_pattern(SIMULATOR_FILE, rf"sample\(.*k\s*=\s*{_NUMBER}").value),
        {one: files.quoted_pattern(SIMULATOR_FILE, rf'"{one}"\s*:\s*{_NUMBER}') for one in datasets},
    )


def their_fixed(chains: DatasetChains, drafter: str, length: int, batch: int, settings: TheirSettings) -> TheirSpeedup:
    """A chain of fixed length by their formulas; n-grams match by coins where nothing was accepted."""
    coins = random.Random(settings.seed)
    records = _sampled(chains.chains[drafter], coins, settings)
    roots = visited(records, np.minimum(records.recorded, length + 1), first=0, last=1)
    shares = np.ones(len(roots))
    if drafter == NGRAM:
        failed = records.recorded[roots] == 1
        shares[failed] = _heads(coins, int(failed.sum()), batch, settings.match_probs[records.dataset].value)
    by_eagle = float(drafter == EAGLE)
    return _speedup(
        records, roots, 1.0 + length * shares, shares * by_eagle, shares * (1 - by_eagle), batch, settings.costs
    )


def their_oracle(chains: DatasetChains, drafter: str, batch: int, settings: TheirSettings) -> TheirSpeedup:
    """Their oracle: it drafts what will be accepted; EAGLE is charged where that is nothing, n-grams are not."""
    records = _sampled(chains.chains[drafter], random.Random(settings.seed), settings)
    roots = visited(records, records.recorded, first=0, last=1)
    lengths = records.recorded[roots].astype(np.float64)
    eagle = np.full(len(roots), float(drafter == EAGLE))
    return _speedup(records, roots, lengths, eagle, (1 - eagle) * (lengths > 1), batch, settings.costs)


def their_combined(chains: DatasetChains, batch: int, settings: TheirSettings, charged: bool) -> TheirSpeedup:
    """Their combination: the longer of both at each entry, texts cut to the shorter.

    Args:
        chains: of both drafters.
        batch: its size.
        settings: theirs.
        charged: whether EAGLE's drafts have EAGLE's cost; theirs charges all rounds as n-grams.
    """
    eagle, ngram = (_sampled(chains.chains[name], random.Random(settings.seed), settings) for name in DRAFTERS)
    lengths = np.minimum(eagle.num_tokens, ngram.num_tokens)
    eagle, ngram = eagle.cut(lengths), ngram.cut(lengths)
    longer = np.maximum(eagle.recorded, ngram.recorded)
    roots = visited(eagle, longer, first=0, last=1)
    by_eagle = charged * (eagle.recorded > ngram.recorded)[roots].astype(np.float64)
    return _speedup(eagle, roots, longer[roots].astype(np.float64), by_eagle, 1 - by_eagle, batch, settings.costs)


def _sampled(records: ChainRecords, coins: random.Random, settings: TheirSettings) -> ChainRecords:
    num_requests = len(records.request_ids)
    return records.take(np.array(coins.sample(range(num_requests), min(settings.sampled, num_requests)), np.int64))


def _heads(coins: random.Random, num_rounds: int, batch: int, prob: float) -> Doubles:
    """The share of the copies whose coin shows a match, in each round; float64 ``[rounds]``."""
    *key, place = coins.getstate()[1]
    bits = np.random.MT19937()
    bits.state = {"bit_generator": "MT19937", "state": {"key": np.array(key, np.uint32), "pos": place}}
    of_copies = np.random.Generator(bits)
    sizes = np.diff(np.append(np.arange(0, num_rounds, 4096), num_rounds)).tolist()
    shares = [(of_copies.random((size, batch)) < prob).mean(axis=1) for size in sizes]
    return np.concatenate([np.zeros(0), *shares])


def _speedup(
    records: ChainRecords,
    roots: Longs,
    verified: Doubles,
    eagle: Doubles,
    ngram: Doubles,
    batch: int,
    costs: PassCosts,
) -> TheirSpeedup:
    owners, tokens = records.owners[roots], records.num_tokens
    contexts = records.prompt_tokens[owners] + records.positions[roots] + 1
    decode_s = round_sums(len(tokens), owners, contexts, verified, eagle, ngram) @ costs.weights(batch)
    plain_s = autoregressive(records).seconds(costs, batch)
    prefill_s = costs.prefill_s(records.prompt_tokens, batch)
    chain_s, base_s = prefill_s + decode_s, prefill_s + plain_s
    return TheirSpeedup(
        float((tokens / chain_s).mean() / (tokens / base_s).mean()),
        float(base_s.sum() / chain_s.sum()),
        float(plain_s.sum() / decode_s.sum()),
    )
