"""The model card says what it is told, no more, and the same each time."""

from dataclasses import replace

from simlab.real_runner.drafters.config import DFlashConfig
from simlab.real_runner.train.model_card import AblationRow, CardFacts, SetResult, TrainingData, model_card
from simlab.real_runner.train.trainer import CurvePoint, DevScore

CONFIG = DFlashConfig(
    block_size=4,
    mask_token_id=4,
    target_layer_ids=(0, 1, 2),
    num_target_layers=4,
    num_hidden_layers=2,
    hidden_size=32,
    intermediate_size=40,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    rms_norm_eps=1e-6,
    rope_theta=10000.0,
    vocab_size=101,
)
FACTS = CardFacts(
    name="tiny",
    target="smollm2-135m",
    init="target",
    config=CONFIG,
    num_parameters=12345,
    data=TrainingData("text.parquet", 1000, 50_000, own_answers=False),
    plan={"steps": 500, "num_sequences": 4, "num_roots": 32, "loss": {"decay": 4.0, "focal": 0.3}},
    curve=(
        CurvePoint(0, None, {"gsm8k": DevScore(1.1, (0.2, 0.1, 0.05))}),
        CurvePoint(500, 2.34567, {"gsm8k": DevScore(1.8765, (0.55, 0.31, 0.2))}),
    ),
)


def test_the_card_says_what_was_done() -> None:
    card = model_card(FACTS)
    for said in (
        "# tiny",
        "next 3 tokens",
        "1,000 texts of 50,000 tokens",
        "2,000 texts with 32 random roots each, 2.00 passes over the text, 64,000 blocks, 192,000 predicted tokens",
        "| start | the target's last layers |",
        "| loss focal | 0.3 |",
        "| step | loss | gsm8k: chain | gsm8k: first right |",
        "| 0 |  | 1.100 | 20.0 % |",
        "| 500 | 2.346 | 1.877 | 55.0 % |",
        "| gsm8k | 55.0 % | 31.0 % | 20.0 % |",
        "| own parameters | 12,345 |",
    ):
        assert said in card


def test_what_is_not_known_is_left_out() -> None:
    card = model_card(FACTS)
    assert not any(title in card for title in ("## Ablation", "## Acceptance length", "## Hardware", "license"))
    assert "\n\n\n" not in card
    assert "None" not in card
    assert "## Curve" not in model_card(replace(FACTS, curve=()))


def test_results_ablation_and_hardware_are_shown_when_given() -> None:
    card = model_card(
        replace(
            FACTS,
            ablation=(AblationRow("decay only", 400, {"gsm8k": 1.5}), AblationRow("all | three", 400, {"gsm8k": 1.6})),
            results=(
                SetResult("gsm8k (evaluation)", 64, {"chain": 2.2, "ddtree:budget=16": 2.9}, (0.6, 0.4, 0.25)),
                SetResult("mt-bench", 32, {"chain": 1.7}),
            ),
            licence="apache-2.0",
            hardware="2 cores of a Zen 4",
            seconds=5400.0,
            notes=("## Limits\n\nShort texts only.",),
        )
    )
    for said in (
        "license: apache-2.0",
        "| run | steps | gsm8k |",
        "| all \\| three | 400 | 1.600 |",
        "| set | prompts | chain | ddtree:budget=16 |",
        "| gsm8k (evaluation) | 64 | 2.200 | 2.900 |",
        "| mt-bench | 32 | 1.700 |  |",
        "| gsm8k (evaluation) | 60.0 % | 40.0 % | 25.0 % |",
        "2 cores of a Zen 4; 90 minutes of training.",
        "Short texts only.",
    ):
        assert said in card
    assert card.startswith("---\n")
    assert card.endswith("only.\n")
