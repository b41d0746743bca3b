"""The entry point of the command line: runs the command that the arguments name, and returns its exit code.

Exit codes: 0, the command is done, or was stopped by Ctrl-C where that is its usual end, or the reader of its output has closed
the pipe; 1, an error (one line on stderr), or a failed `check`; 2, wrong arguments; 130, Ctrl-C before the command was done.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, NoReturn

from spark_producer import __version__
from spark_producer.cli.console import escape_unencodable, hide_given_secrets, print_error, silence_stdout
from spark_producer.cli.given_secrets import without_values
from spark_producer.cli.pages import HelpfulParser
from spark_producer.cli.renamed_args import warn_renamed
from spark_producer.common.escape import for_log
from spark_producer.errors import PyProducerError

if TYPE_CHECKING:
    from importlib.metadata import Distribution

    from spark_producer.kernel.dispatch import LoadedKernel

COMMANDS: Mapping[str, str] = {
    "check": "find out whether a write to a topic would work",
    "write": "write the rows of files to a topic",
    "tail": "print the records of a topic as they arrive",
    "topics": "list, describe, create and delete topics",
    "bench": "measure how fast records go into a topic",
    "txn": "show and repair the transactions of exactly-once writes",
    "downconvert": "rewrite a log file in a message format from before Kafka 0.11",
    "options": "list every option with its default",
    "bytecode": "add bytecode to Spark's pyspark.zip, so that its Python processes start faster",
    "broker": "run the embedded broker: one node, for development and tests",
}
"""The commands and their descriptions. The module of a command is imported when it is run: together they load most of the
package, Arrow and pandas, and the help would be slow."""

SHELLS = ("bash", "fish", "tcsh", "zsh")
"""The shells with completion."""

SPARK_PACKAGES = ("pyspark", "pyspark-client", "pyspark-connect")

OLD_COMMANDS: Mapping[str, str] = {"convert": "downconvert"}
"""Deprecated names of commands, with the names that they have now."""

OTHER_NAMES = {
    "--option": "--producer-config",
    "--producer-property": "--producer-config",
    "--producer.config": "--command-config",
    "--consumer.config": "--command-config",
}
"""Names of arguments in the jobs and in Kafka's own tools, and the names that these commands have for them."""

INTERRUPTED = 130
"""The exit code after Ctrl-C: 128 + SIGINT, as in shells."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command, and return its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    # `unfinished` says what an interrupted command leaves; it is None for commands that run until Ctrl-C.
    chosen = argparse.Namespace(unfinished="nothing was changed")
    escape_unencodable()
    hide_given_secrets(given)
    try:
        if given and given[0] in OLD_COMMANDS:
            warn_renamed(given[0], OLD_COMMANDS[given[0]])
            given[0] = OLD_COMMANDS[given[0]]
        parser = parser_of([one for one in given if one in COMMANDS][:1])
        if not given:
            parser.print_help()
            return 0
        if given[0] not in COMMANDS and not given[0].startswith("-"):
            _refuse_command(parser, given[0])
        _, unknown = parser.parse_known_args(given, chosen)
        if unknown:
            _refuse(parser, given, unknown)
        code: int = chosen.run(chosen) or 0
        if sys.stdout is not None:
            sys.stdout.flush()  # raises here if the pipe is closed, and not with a traceback at exit
        return code
    except PyProducerError as error:
        print_error(str(error))
        return 1
    except KeyboardInterrupt:
        if chosen.unfinished is None:
            return 0
        print_error(f"interrupted: {chosen.unfinished}")
        return INTERRUPTED
    except BrokenPipeError:  # the reader of a pipe, such as `| head`, has closed it
        silence_stdout()
        return 0
    except OSError as error:  # of stdout: errors of connections and files are PyProducerErrors
        silence_stdout()
        print_error(f"the output cannot be written: {error.strerror or error}")
        return 1


def parser_of(chosen: Collection[str]) -> argparse.ArgumentParser:
    """Return the parser of all commands, with the arguments of the `chosen` ones."""
    parser = HelpfulParser(
        prog="pyproducer", description="Tools around the PySpark data source that reads and writes Kafka."
    )
    parser.add_argument(
        "--version",
        action=_Version,
        nargs=0,
        help="print the versions of pyproducer, its kernel, Python, pyarrow and Spark, and exit",
    )
    parser.add_argument(
        "--completion",
        action=_Completion,
        choices=SHELLS,
        metavar="SHELL",
        help=f"print a script that completes commands, arguments and files in a shell ({', '.join(SHELLS)}), and exit; needs "
        "pyproducer[completion] (docs/command_line.md)",
    )
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for name, description in COMMANDS.items():
        if name in chosen:
            importlib.import_module(f"spark_producer.cli.{name}").add(commands)
            # its line in the help, which its module leaves out
            commands._choices_actions.append(commands._ChoicesPseudoAction(name, (), description))
        else:
            commands.add_parser(name, help=description)
    return parser


def _refuse_command(parser: argparse.ArgumentParser, given: str) -> NoReturn:
    """Exit with the usage, and suggest a command with a similar name if there is one."""
    similar = get_close_matches(given, COMMANDS, n=1)
    hint = f"Did you mean {similar[0]}?" if similar else "`pyproducer --help` lists them"
    parser.error(f"there is no command {for_log(given, limit=None)!r}. {hint}")


def _refuse(parser: argparse.ArgumentParser, given: Sequence[str], unknown: Sequence[str]) -> NoReturn:
    """Exit with the usage of the command, and suggest an argument with a similar name if there is one."""
    at = parser
    for name in given:
        at = _commands_of(at).get(name, at)
    shown = [action for action in at._actions if action.help != argparse.SUPPRESS]
    known = [option for action in shown for option in action.option_strings]
    name = unknown[0].partition("=")[0]
    similar = [other for other in (OTHER_NAMES.get(name),) if other in known] or get_close_matches(name, known, n=1)
    hint = f". Did you mean {similar[0]}?" if similar else ""
    at.error(f"unrecognized arguments: {for_log(' '.join(without_values(unknown)), limit=None)}{hint}")


def _commands_of(parser: argparse.ArgumentParser) -> Mapping[str, argparse.ArgumentParser]:
    """Return the parsers of a command's actions by name; most commands have no actions."""
    own = (action.choices for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    return next(own, {})


class _Completion(argparse.Action):
    """Prints the completion script of a shell."""

    def __call__(self, parser: argparse.ArgumentParser, _: object, shell: Any, *__: object) -> NoReturn:
        from spark_producer.cli.completion import completion_script

        print(completion_script(shell, parser_of(COMMANDS)))
        parser.exit()


class _Version(argparse.Action):
    """Prints the versions for a bug report: pyproducer, the kernel, Python, pyarrow and Spark."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        from importlib.metadata import distributions

        from spark_producer.kernel import LOADED

        print(version_line(LOADED, distributions()))
        parser.exit()


def version_line(kernel: LoadedKernel, installed: Iterable[Distribution]) -> str:
    """Return the versions of this package, its kernel, Python, pyarrow and Spark on one line."""
    import platform

    import pyarrow as pa

    spark = next((one.version for one in installed if one.name in SPARK_PACKAGES), "not installed by pip")
    python = platform.python_version()
    return f"pyproducer {__version__} ({kernel.describe()}; Python {python}, pyarrow {pa.__version__}, Spark {spark})"
