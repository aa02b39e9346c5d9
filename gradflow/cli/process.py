"""What the command line sets for its process, which a library must not."""

import contextlib
import os
import sys
from pathlib import Path

import jax


def prepare() -> None:
    """Set the process up for experiments: float64, figures without windows, compiled kernels kept between calls."""
    os.environ.setdefault("MPLBACKEND", "Agg")
    if "JAX_ENABLE_X64" not in os.environ:
        jax.config.update("jax_enable_x64", True)
    # On jax 0.10 a kernel with a host callback, such as a run-time check of Equinox, never enters the cache. Equinox
    # reads the variable when it is imported, which `import gradflow` has done by now.
    if "EQX_ON_ERROR" not in os.environ:
        sys.modules["equinox._errors"].EQX_ON_ERROR = "off"  # pyright: ignore[reportAttributeAccessIssue]
    if "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gradflow" / "jax"
    with contextlib.suppress(OSError):
        cache.mkdir(parents=True, exist_ok=True)
        if os.access(cache, os.W_OK | os.X_OK):
            jax.config.update("jax_compilation_cache_dir", str(cache))
            jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
