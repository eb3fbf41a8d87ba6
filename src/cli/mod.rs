//! The command line: one file per subcommand, each with its `Args` and its `run`.
//!
//! Exit status: 0 when all went well, 1 when running failed, 2 for a command line that cannot be understood, 78
//! (`EX_CONFIG`) for a configuration with problems.

#![allow(clippy::print_stdout, clippy::print_stderr)]

mod check;
mod completions;
mod demo;
mod healthcheck;
mod init;
mod run;
mod source;
mod store;
mod tools;

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
    /// Run the proxy
    Run(run::Args),
    /// Check a configuration: print what is in effect, or every problem at once
    Check(check::Args),
    /// Write a configuration file with every setting and its default
    Init(init::Args),
    /// Show what an upstream's tools are and how each of them is treated
    Tools(tools::Args),
    /// Check, export or prune the file of a store
    Store(store::Args),
    /// Play all flows against a built-in slow server
    Demo(demo::Args),
    /// Ask a running taskgate whether it is alive
    Healthcheck(healthcheck::Args),
    /// Print a completion script for a shell
    Completions(completions::Args),
}

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Run(args) => run::run(&args),
        Command::Check(args) => check::run(args),
        Command::Init(args) => init::run(args),
        Command::Tools(args) => tools::run(args),
        Command::Store(args) => store::run(&args),
        Command::Demo(args) => demo::run(args),
        Command::Healthcheck(args) => healthcheck::run(args),
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
