"""What each figure shows, how it was made, and what a reader who cannot see it should know."""

from gradflow.experiments.routing.config import D_K, D_V, SCALE, Config


def texts(config: Config) -> dict[str, tuple[str, str, str]]:
    """Return title, caption and alternative text of every figure."""
    length = 3 * config.middle
    task = _task(config)
    runs = f"Flow at rtol {config.rtol:g}; descent with eta = {config.step_size:g} at t = eta k."
    seeds = "Faint lines: seeds; bold: their median; band: quartiles."
    return {
        "heat-maps": (
            "Attention sharpens onto the pair that is asked for, and hardly where labels mean nothing",
            f"Weights of the first sequence of one seed, T = {length}, along the flow; columns by what the loss of the "
            f"upper row has done. White squares: the stored pair with the key of the row. {task}",
            "Two rows of five heat maps. In the upper row the weights of the questions gather on the marked cells and "
            "on earlier questions with the same key; in the lower one they stay spread.",
        ),
        "loss": (
            "The loss waits, then falls, and never rises while steps are small",
            f"{runs} {seeds} {task}",
            "Three panels of loss over time: three sizes, where longer sequences wait longer; four arms, where "
            "routing kept uniform stays high; and large steps, which rise and diverge.",
        ),
        "sharpening": (
            "Routing: spread, aim, speed and specialisation",
            f"T = {length}. Entropy over log i and the share of the asked pair are means over the questions' rows. "
            f"|D| and |A^T U| are the speeds of free scores and free values. {runs} {seeds} {task}",
            "Four panels over time: entropy falls most for the softmax; the share of the asked pair goes to one for "
            "softmax, stays at chance for random labels; the speed of scores peaks as the loss falls and stays "
            "above that of values; specialisation rises above that of permuted classes.",
        ),
        "value-path": (
            "Values move in a plane, and so they do where nothing is learned",
            f"Left: values of the stored pairs of one sequence along the flow, on the first two principal components "
            f"of all of them at all times; ring: start, dot: end, coloured by value. Middle: share of PC1 + PC2 "
            f"of the path at 40 equal distances; band: 95 % of random walks of W_V. Right: participation ratio of "
            f"the stored values of all sequences. T = {length}. {seeds} {task}",
            "Paths leave a common start and end in four groups, one a value. All arms have shares near one, above "
            "the band of random walks. The cloud of values ends near three dimensions.",
        ),
        "advantage": (
            "D foresees each change of attention through W_Q and W_K, the advantage alone does not",
            f"Observed: change of the questions' weights under one step of descent. Foreseen: first order in -D, "
            f"carried through the shared W_Q and W_K, or as if scores were free. Scatter: first sequence of one seed, "
            f"T = {length}, all saves, each over its largest change. Right: residual relative to the observed change; "
            f"softmax's law on sigmoid heads along their flow. {seeds} {task}",
            "The carried prediction lies on the identity line, the one of the advantage alone scatters widely. Its "
            "correlation is about a third until late. Residuals of the law are near a thousandth, of all wrong laws "
            "above a tenth.",
        ),
        "seeds-and-sizes": (
            "What depends on seed and size: the time it takes, hardly where it ends",
            f"Flow to t = {config.ts[-1]:g}, one cell a run. {task}",
            "Two tables over seeds and lengths: the final entropy, alike in all, and the time of half the fall of the "
            "loss, which grows with the length.",
        ),
        "audit": (
            "Every law of attention that applies holds along the flow",
            f"`gf.laws.audit` of the flow of the first seed, T = {length}: the largest residual along the run "
            f"beside its tolerance. {task}",
            "A list of laws, each with a green dot below its tolerance.",
        ),
    }


def _task(config: Config) -> str:
    return (
        f"Settings ours: keys and values are stored in the first third, then each key is asked for twice; "
        f"{config.sequences} sequences, d_k = {D_K}, d_v = {D_V}, entries N(0, {SCALE}^2) at the start, "
        f"{config.seeds} seeds."
    )
