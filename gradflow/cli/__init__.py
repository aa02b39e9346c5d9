"""The command line: parse, call, print."""

from gradflow.cli.entry import main as main
from gradflow.cli.process import prepare as prepare
