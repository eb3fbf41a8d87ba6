//! The command line: one file per subcommand, each with its `Args` and its `run`.
//!
//! Exit status: 0 when all went well, 1 when running failed, 2 for a command line that cannot be understood, 78
//! (`EX_CONFIG`) for a configuration with problems.

#![allow(clippy::print_stdout, clippy::print_stderr)]

mod check;
mod completions;
mod init;
mod source;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

pub use source::Source;

/// Exit status for a configuration with problems.
pub const EX_CONFIG: u8 = 78;

/// A reverse proxy for MCP servers that turns slow tool calls into tasks or job handles.
#[derive(Debug, Parser)]
#[command(name = "taskgate", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Check a configuration: print what is in effect, or every problem at once
    Check(check::Args),
    /// Write a configuration file with every setting and its default
    Init(init::Args),
    /// Print a completion script for a shell
    Completions(completions::Args),
}

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Check(args) => check::run(args),
        Command::Init(args) => init::run(args),
        Command::Completions(args) => completions::run(args),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn flags_and_files_are_understood() {
        for line in ["check", "check a.toml --listen 1:2", "init", "init a.toml --force", "completions bash"] {
            assert!(Cli::try_parse_from(format!("taskgate {line}").split(' ')).is_ok(), "{line}");
        }
        for line in ["", "chek", "completions cobol", "check a b"] {
            assert!(Cli::try_parse_from(format!("taskgate {line}").split(' ')).is_err(), "{line}");
        }
    }
}
