//! `taskgate store`: a store's file looked at from outside.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;

use super::Source;
use crate::store::embedded::{self, Report};
use crate::store::{Clock, Kind, OpenError};
use crate::task::Timestamp;

/// What to do, and with which file.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Look through the whole file and count what is in it; a running taskgate may have it
    ///
    /// Status 0 if it is sound, 1 if it is damaged or cannot be opened.
    Check(Source),
    /// Print every task as a line of JSON, its result with it; a running taskgate may have the file
    ///
    /// Of ids it has the beginning, as the log does; no owners, no sessions, no requests are in it. Results are, whole:
    /// it is as secret as they are. Status 1 if something could not be read.
    Export(Source),
    /// Drop what is expired now and give all free space back; a running taskgate does so by itself
    ///
    /// Status 1 if the file cannot be used, or if a taskgate has it.
    Prune(Source),
}

/// Status 0 if all is well, 1 if not, 78 for a configuration with problems.
pub(super) fn run(args: &Args) -> ExitCode {
    let (Action::Check(source) | Action::Export(source) | Action::Prune(source)) = &args.action;
    let path = match place(source) {
        Ok(path) => path,
        Err(status) => return status,
    };
    let done = match &args.action {
        Action::Check(_) => check(&path),
        Action::Export(_) => export(&path),
        Action::Prune(_) => prune(&path),
    };
    done.unwrap_or_else(|error| {
        eprintln!("{error}");
        ExitCode::FAILURE
    })
}

/// The file that `run` would use with the same arguments.
fn place(source: &Source) -> Result<PathBuf, ExitCode> {
    match source.store()? {
        Kind::Embedded { path } => Ok(path),
        Kind::Memory => {
            eprintln!("the store is memory: there is no file; --store PATH names one");
            Err(ExitCode::FAILURE)
        }
    }
}

fn check(path: &std::path::Path) -> Result<ExitCode, OpenError> {
    let report = embedded::check(path)?;
    print!("{}", summary(&report));
    Ok(if report.damage.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn summary(report: &Report) -> String {
    let mut lines: Vec<String> = report.damage.iter().map(|what| format!("damaged   {what}")).collect();
    if lines.is_empty() {
        lines.push("ok".to_owned());
    }
    lines.push(format!("schema    {}", report.schema));
    let tasks: u64 = report.tasks.iter().map(|(_, count)| count).sum();
    let each: Vec<String> = report.tasks.iter().map(|(status, count)| format!("{count} {status}")).collect();
    let each = if each.is_empty() { String::new() } else { format!(": {}", each.join(", ")) };
    lines.push(format!("tasks     {tasks}{each}"));
    lines.push(format!("results   {}, {}", report.results, bytes(report.result_bytes)));
    lines.push(format!("sessions  {}", report.sessions));
    let (file, free, log) = (report.file_bytes, report.free_bytes, report.log_bytes);
    lines.push(format!("file      {}, {} of it free; log {}", bytes(file), bytes(free), bytes(log)));
    lines.join("\n") + "\n"
}

fn bytes(count: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    let unit = UNITS.iter().find(|(size, _)| count >= *size);
    unit.map_or_else(
        || format!("{count} B"),
        |(size, unit)| format!("{}.{} {unit}", count / size, count % size * 10 / size),
    )
}

fn export(path: &std::path::Path) -> Result<ExitCode, OpenError> {
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let (written, mut trouble) = embedded::export(path, &mut out)?;
    if let Err(error) = out.flush() {
        trouble.push(format!("the output was closed: {error}"));
    }
    trouble.iter().for_each(|what| eprintln!("not exported: {what}"));
    eprintln!("{written} tasks exported");
    Ok(if trouble.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn prune(path: &std::path::Path) -> Result<ExitCode, OpenError> {
    let size = || std::fs::metadata(path).map_or(0, |file| file.len());
    let before = size();
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let unusable = |error: std::io::Error| OpenError::Unusable { path: path.to_owned(), why: error.to_string() };
    let purged = runtime.map_err(unusable)?.block_on(embedded::prune(path, now()))?;
    let (results, records) = (purged.results, purged.records);
    println!("dropped {results} results and {records} records: {} became {}", bytes(before), bytes(size()));
    Ok(ExitCode::SUCCESS)
}

fn now() -> Timestamp {
    Timestamp::of(Clock::system().now())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_says_what_is_in_the_file() {
        let report = Report {
            schema: 1,
            tasks: vec![("completed".into(), 2), ("working".into(), 1)],
            results: 2,
            result_bytes: 3 << 19,
            file_bytes: 2_000,
            ..Report::default()
        };
        let sound = "ok\nschema    1\ntasks     3: 2 completed, 1 working\nresults   2, 1.5 MiB\nsessions  0\n\
                     file      1.9 KiB, 0 B of it free; log 0 B\n";
        assert_eq!(summary(&report), sound);
        let damaged = summary(&Report { damage: vec!["page 7".into()], ..report });
        assert!(damaged.starts_with("damaged   page 7\nschema"), "{damaged}");
    }
}
