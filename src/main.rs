//! The `taskgate` binary: parse, then let the command line's room do the rest.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    taskgate::cli::main()
}
