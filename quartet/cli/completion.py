"""`quartet completion`: shell completion of commands, options, runs and recipes."""

import click
from click.shell_completion import get_completion_class

from quartet.terminal.say import say

SHELLS = ("bash", "zsh", "fish")


@click.command(name="completion")
@click.argument("shell", type=click.Choice(SHELLS))
def command(shell: str) -> None:
    """Print the completion script of SHELL.

    \b
    bash:  quartet completion bash > ~/.local/share/bash-completion/completions/quartet
    zsh:   quartet completion zsh > ~/.zfunc/_quartet     (a folder of $fpath)
    fish:  quartet completion fish > ~/.config/fish/completions/quartet.fish
    """
    from quartet.cli import cli

    completion = get_completion_class(shell)
    assert completion is not None
    say(completion(cli, {}, "quartet", "_QUARTET_COMPLETE").source())
