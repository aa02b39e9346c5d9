"""What to cite: gradflow, the papers it implements, and the packages that do its numerical work."""

from importlib.metadata import PackageNotFoundError, version

_ENTRIES = """\
@software{gradflow,
  author  = {{The gradflow authors}},
  title   = {gradflow: gradient flows of {E}quinox models in {JAX}},
  version = {<gradflow-jax>},
  year    = {2026},
}

@misc{varre2026gradient,
  author        = {Varre, Aditya and Rofin, Mark and Flammarion, Nicolas},
  title         = {Gradient Flow Polarizes Softmax Outputs towards Low-Entropy Solutions},
  year          = {2026},
  eprint        = {2603.06248},
  archivePrefix = {arXiv},
  primaryClass  = {cs.LG},
}

@misc{agarwal2025gradient,
  author        = {Agarwal, Naman and Dalal, Siddhartha R. and Misra, Vishal},
  title         = {Gradient Dynamics of Attention: How Cross-Entropy Sculpts {B}ayesian Manifolds},
  year          = {2025},
  eprint        = {2512.22473},
  archivePrefix = {arXiv},
  primaryClass  = {stat.ML},
}

@phdthesis{kidger2021on,
  author = {Kidger, Patrick},
  title  = {On Neural Differential Equations},
  year   = {2021},
  school = {University of Oxford},
  note   = {Diffrax <diffrax>},
}

@article{kidger2021equinox,
  author  = {Kidger, Patrick and Garcia, Cristian},
  title   = {{E}quinox: neural networks in {JAX} via callable {P}y{T}rees and filtered transformations},
  journal = {Differentiable Programming workshop at Neural Information Processing Systems},
  year    = {2021},
  note    = {Equinox <equinox>},
}

@software{deepmind2020jax,
  author  = {{DeepMind} and Babuschkin, Igor and Baumli, Kate and others},
  title   = {The {D}eep{M}ind {JAX} Ecosystem},
  url     = {http://github.com/google-deepmind},
  year    = {2020},
  note    = {Optax <optax>},
}

@software{jax2018github,
  author  = {Bradbury, James and Frostig, Roy and Hawkins, Peter and Johnson, Matthew James and Leary, Chris and
             Maclaurin, Dougal and Necula, George and Paszke, Adam and Vander{P}las, Jake and
             Wanderman-{M}ilne, Skye and Zhang, Qiao},
  title   = {{JAX}: composable transformations of {P}ython+{N}um{P}y programs},
  url     = {http://github.com/jax-ml/jax},
  version = {<jax>},
  year    = {2018},
}
"""


class BibTeX(str):
    """Text that shows itself as it is, line by line, where Python would show a string's escapes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def citation() -> BibTeX:
    """Return the BibTeX entries for a paper that used gradflow, with the versions installed here.

    Returns:
        gradflow, the two papers it implements (arXiv 2603.06248 and 2512.22473), Diffrax, Equinox, Optax and JAX.
    """
    text = _ENTRIES
    for distribution in ("gradflow-jax", "diffrax", "equinox", "optax", "jax"):
        text = text.replace(f"<{distribution}>", _installed(distribution))
    return BibTeX(text)


def _installed(distribution: str) -> str:
    """Return a distribution's version; gradflow itself may be used from its source folder, uninstalled."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "uninstalled"
