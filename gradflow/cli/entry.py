"""The commands by name, and the exit code of each mistake."""

import sys
from collections.abc import Callable, Sequence

import gradflow
from gradflow.cli.experiments import INTERRUPTED, list_experiments, reproduce_experiments, run_experiment
from gradflow.cli.show import complain
from gradflow.cli.sweep import run_sweep
from gradflow.cli.words import expect_no_words
from gradflow.errors import FlowError, unknown

USAGE = 2  # exit code of input that cannot be used
USAGE_TEXT = """\
usage: gradflow COMMAND

  gradflow list                                         name, title, source and number of claims of each experiment
  gradflow run NAME [--preset quick|paper] [--out DIR] [--key value ...] [--overwrite | --resume]
                                                        run one: results, figures, verdicts and report.html
  gradflow run NAME --help                              every setting of an experiment, with its default
  gradflow reproduce [NAME ...] [--out DIR] [--overwrite]
                                                        run all and compare each verdict with the recorded one
  gradflow sweep [SPEC.toml] [--out DIR] [--key value ...] [--overwrite | --resume]
                                                        train over a grid: a store, a table and a heat map
  gradflow sweep --help                                 every setting of a sweep, with its default
  gradflow citation                                     what to cite, as BibTeX
  gradflow --version
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        arguments: the words after `gradflow`; None takes them from the process.

    Returns:
        The exit code: 0, 1 where a verdict is not the recorded one, 2 for input that cannot be used, 130 after Ctrl-C.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        return _dispatch(words)
    except FlowError as error:
        return complain(str(error), USAGE)
    except OSError as error:
        return complain(f"{error.filename or 'input or output'}: {error.strerror or error}", USAGE)
    except KeyboardInterrupt:
        return complain("interrupted", INTERRUPTED)
    except SystemExit as end:  # tyro, after it has shown the help
        return int(end.code or 0)


def _dispatch(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        print(USAGE_TEXT, end="")
        return 0
    if words[0] == "--version":
        print(f"gradflow {gradflow.__version__}")
        return 0
    if words[1:] == ["--help"] and words[0] not in ("reproduce", "sweep"):
        return _dispatch([])
    if words[0] not in COMMANDS:
        raise unknown("command", words[0], COMMANDS)
    return COMMANDS[words[0]](words[1:])


def _citation(words: list[str]) -> int:
    expect_no_words("citation", words)
    print(gradflow.citation(), end="")
    return 0


COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "list": list_experiments,
    "run": run_experiment,
    "reproduce": reproduce_experiments,
    "sweep": run_sweep,
    "citation": _citation,
}
