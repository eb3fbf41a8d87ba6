//! `taskgate completions`: a script that makes a shell complete the command line.

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::CommandFactory as _;
use clap_complete::Shell;

/// For which shell.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(super) struct Args {
    /// The shell
    shell: Shell,
}

/// Prints the script; a reader that closes the pipe early is no failure.
pub(super) fn run(args: Args) -> ExitCode {
    match io::stdout().write_all(&script(args.shell)) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => ExitCode::FAILURE,
        Ok(()) | Err(_) => ExitCode::SUCCESS,
    }
}

fn script(shell: Shell) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut super::Cli::command(), "taskgate", &mut script);
    script
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shell_has_a_script_that_names_the_subcommands() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish, Shell::PowerShell, Shell::Elvish] {
            let script = String::from_utf8(script(shell)).unwrap();
            assert!(script.contains("completions") && script.contains("check"), "{shell}");
        }
    }
}
