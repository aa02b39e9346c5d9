"""What is said about the feedback between routing and values, and how often it is so."""

import numpy as np

from gradflow.experiments.base import Claim, Results, judge
from gradflow.experiments.feedback.config import FREE, FROZEN, KINDS, OWN, Config
from gradflow.experiments.intervals import Interval, share

EXACT = 1e-12
ALMOST = 95.0  # percent above which a rule counts as one
SHIFT = 5.0  # points below which two shares count as equal
PAPER = "arXiv 2512.22473, positive feedback of routing and values; no frequency is given"
SOFTMAX = tuple(name for name, kind in KINDS.items() if kind.activation == "softmax")
SIGMOID = tuple(name for name, kind in KINDS.items() if kind.activation == "sigmoid")
CAUSAL = ("free-values", "shared-values")


def claims(config: Config, results: Results) -> list[Claim]:
    """Judge every claim."""
    judges = (_theorem, _training, _law, _own, _cross, _follows, _sigmoid)
    return [judge_claim(config, results) for judge_claim in judges]


def growing(
    results: Results, kinds: tuple[str, ...], column: int, *, start: int | None = None, time: int | None = None
) -> Interval:
    """Return in how many percent of the rows the advantage of the attended position grows.

    Args:
        results: of all stages.
        kinds: of heads, pooled.
        column: of `signs`: which prediction or step.
        start: index of length and scale; None pools them.
        time: index of the time; None pools them.

    Returns:
        The share; runs are drawn whole.
    """
    hits, counts = [], []
    for kind in kinds:
        run = results[kind]
        signs = run["signs"][..., column] if start is None else run["signs"][run["of_start"] == start][..., column]
        signs = signs if time is None else signs[:, time : time + 1]
        hits.append((signs > 0).sum(axis=(1, 2)))
        counts.append((signs != 0).sum(axis=(1, 2)))
    return share(np.concatenate(hits), np.concatenate(counts))


def agreement(results: Results, kinds: tuple[str, ...], predicted: int, seen: int) -> Interval:
    """Return for how many percent of all pairs OWN or FREE predict the sign seen with U frozen (0) or jointly (1)."""
    tables = np.concatenate([results[kind]["pairs"][:, :, predicted, seen].sum(axis=1) for kind in kinds])
    return share(tables[:, 0, 0] + tables[:, 1, 1], tables.sum(axis=(1, 2)))


def rarer(results: Results, kinds: tuple[str, ...], seen: int) -> float:
    """Return the share of the more frequent sign, in percent: what a constant prediction gets right."""
    table = sum(results[kind]["pairs"][:, :, FREE, seen].sum(axis=(0, 1)) for kind in kinds)
    columns = np.asarray(table).sum(axis=0)
    return float(100 * columns.max() / columns.sum())


def longest(config: Config) -> int:
    """Return the start of causal heads with the longest sequence and the paper's scale."""
    return len(config.lengths) - 1


def _theorem(config: Config, results: Results) -> Claim:
    joint = growing(results, SOFTMAX, config.joint_column())
    large = growing(results, SOFTMAX, config.joint_column(-1))
    each = {kind: growing(results, (kind,), config.joint_column()) for kind in SOFTMAX}
    return Claim(
        "positive-feedback",
        "A step of descent raises the advantage of the position that a row attends to, so attention and values "
        "reinforce each other.",
        PAPER,
        f"the advantage of the largest weight grows in {joint:.0f} % of the rows in a step of {config.step_sizes[0]:g} "
        f"of all parameters ({large:.0f} % at {config.step_sizes[-1]:g}): "
        + "; ".join(f"{kind} {value:.0f} %" for kind, value in each.items()),
        judge(joint.low > ALMOST),
        "a theorem would give 100 %, a coin 50 %; intervals are 95 %, runs drawn whole",
    )


def _training(config: Config, results: Results) -> Claim:
    column = config.joint_column()
    rows = [growing(results, SOFTMAX, column, time=index) for index in range(len(config.times))]
    listed = "; ".join(f"t = {t:g}: {value:.0f} %" for t, value in zip(config.times, rows, strict=True))
    frozen = [growing(results, SOFTMAX, FROZEN, time=index).value for index in (0, len(rows) - 1)]
    return Claim(
        "through-training",
        "The feedback lasts through training: late in training the advantage grows at least as often as at the start.",
        f"{PAPER}; the feedback is said to drive the sharpening of attention",
        f"share of rows whose attended position gains advantage in the joint step, {listed}",
        judge(rows[-1].value > rows[0].value - SHIFT),
        f"with U frozen the share goes from {frozen[0]:.0f} to {frozen[1]:.0f} %: what fades is the error, and "
        "with it U and the advantage",
    )


def _law(config: Config, results: Results) -> Claim:
    free = tuple(kind for kind in SOFTMAX if not KINDS[kind].shared)
    shared = tuple(kind for kind in SOFTMAX if KINDS[kind].shared)
    residual = max(float(results[kind]["law"].max()) for kind in free)
    own, other = agreement(results, free, FREE, 0), agreement(results, shared, FREE, 0)
    return Claim(
        "frozen-law",
        "With U frozen a step of free values changes the compatibility by exactly -eta U U^T A.",
        "Derived here from the responsibility law of arXiv 2512.22473",
        f"largest relative residual {residual:.0e}; the sign of the growth is right for {own:.1f} % of all pairs",
        judge(residual < EXACT, own.low > 99.9),
        f"values shared through W_V move by X X^T A^T U instead: there the same law has the right sign for only "
        f"{other:.0f} %",
    )


def _own(config: Config, results: Results) -> Claim:
    met = growing(results, SOFTMAX, OWN)
    frozen, joint = (agreement(results, SOFTMAX, OWN, seen) for seen in (0, 1))
    full = agreement(results, SOFTMAX, FREE, 1)
    constant = rarer(results, SOFTMAX, 1)
    return Claim(
        "own-query-decides",
        "The advantage of a pair grows if and only if A_ij > sum_k A_ik^2.",
        "Derived here: the part of the feedback through the row's own query",
        f"the largest weight of a row meets the condition always ({met:.1f} %), so it cannot tell attended positions "
        f"apart; over all pairs it has the right sign for {frozen:.0f} % with U frozen and {joint:.0f} % in the joint "
        "step",
        judge(frozen.low > ALMOST, joint.low > ALMOST),
        f"the law with all queries is right for {full:.0f} % of joint steps, saying always the same for "
        f"{constant:.0f} %",
    )


def _cross(config: Config, results: Results) -> Claim:
    table = {
        kind: [growing(results, (kind,), FROZEN, start=start) for start in range(len(config.lengths))]
        for kind in CAUSAL
    }
    listed = "; ".join(
        f"{kind} "
        + ", ".join(f"{_reversed(value):.0f} % (T = {t})" for t, value in zip(config.lengths, row, strict=True))
        for kind, row in table.items()
    )
    shared, free = (growing(results, (kind,), FROZEN) for kind in reversed(CAUSAL))
    often = all(_reversed(value).low > SHIFT for row in table.values() for value in row)
    longer = all(row[-1].value < row[0].value for row in table.values())
    return Claim(
        "cross-terms-reverse",
        "The other queries reverse the feedback of the row's own query, more often in longer sequences and with shared "
        "values.",
        "Derived here: -eta U U^T A has off-diagonal terms u_i . u_k",
        f"with U frozen the advantage of the attended position falls, although its own query raises it, in {listed}; "
        f"all causal heads: free {_reversed(free):.0f} %, shared {_reversed(shared):.0f} %",
        judge(often, longer, shared.high < free.low),
        "without cross terms it would be 0 %: the own-query term is never negative there",
    )


def _reversed(value: Interval) -> Interval:
    return Interval(100 - value.value, 100 - value.high, 100 - value.low)


def _follows(config: Config, results: Results) -> Claim:
    names = ("U frozen", "values move, U follows", "everything moves")
    columns = (FROZEN, config.values_column(), config.joint_column())
    rows = [growing(results, SOFTMAX, column) for column in columns]
    return Claim(
        "frozen-u-tells",
        "What a step of the values does with U frozen is what training does.",
        f"{PAPER}; the argument holds U fixed",
        "; ".join(f"{name}: grows in {value:.0f} %" for name, value in zip(names, rows, strict=True)),
        judge(max(abs(row.value - rows[0].value) for row in rows) < SHIFT),
        f"shares within {SHIFT:g} points would count as equal; U = R W_O^T shrinks with the error that a step removes",
    )


def _sigmoid(config: Config, results: Results) -> Claim:
    column = config.joint_column()
    softmax, sigmoid = growing(results, CAUSAL, column), growing(results, SIGMOID, column)
    frozen = growing(results, SIGMOID, FROZEN)
    return Claim(
        "needs-competition",
        "Without the competition of the softmax there is no such feedback: the sigmoid's attended position gains less "
        "often.",
        f"{PAPER}; the baseline E[b] belongs to normalised maps",
        f"joint step, causal heads: softmax {softmax:.0f} %, sigmoid {sigmoid:.0f} %",
        judge(sigmoid.high < softmax.low),
        f"the sigmoid's pull is -b without a baseline, its own-query term always raises it, and with U frozen it grows "
        f"in {frozen:.0f} %",
    )
