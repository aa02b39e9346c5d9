"""`python -m gradflow` is the command line."""

from gradflow.cli import main

raise SystemExit(main())
