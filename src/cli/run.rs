//! `taskgate run`: the proxy itself, until it is told to stop.

use std::process::ExitCode;

use tokio::signal::unix::{SignalKind, signal};
use tracing::{info, warn};

use super::Source;
use crate::app::App;
use crate::config::Config;
use crate::telemetry::log;

/// Where the configuration comes from.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    source: Source,
}

/// Runs until SIGTERM or SIGINT and then drains; a second signal ends it at once with status 1.
pub(super) fn run(args: &Args) -> ExitCode {
    let config = match args.source.read() {
        Ok(config) => config,
        Err(status) => return status,
    };
    if let Err(problem) = log::init(&config.log) {
        eprintln!("taskgate: {problem}");
        return ExitCode::from(super::EX_CONFIG);
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("taskgate: no threads can be started: {error}");
            return ExitCode::FAILURE;
        }
    };
    let status = runtime.block_on(serve(config));
    runtime.shutdown_background();
    status
}

async fn serve(config: Config) -> ExitCode {
    for warning in &config.warnings {
        warn!("{warning}");
    }
    let signals = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()));
    let (Ok(mut terminate), Ok(mut interrupt)) = signals else {
        eprintln!("taskgate: signals cannot be listened to");
        return ExitCode::FAILURE;
    };
    let Ok(mut hangup) = signal(SignalKind::hangup()) else {
        eprintln!("taskgate: signals cannot be listened to");
        return ExitCode::FAILURE;
    };
    let app = match App::start(config).await {
        Ok(app) => app,
        Err(error) => {
            eprintln!("taskgate: {error}");
            return ExitCode::FAILURE;
        }
    };
    loop {
        tokio::select! {
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            _ = hangup.recv() => warn!("SIGHUP: nothing is reloaded in this version; restart to change the configuration"),
        }
    }
    info!("draining: no new calls are taken; a second signal ends this at once");
    app.drain();
    tokio::select! {
        () = app.finished() => {
            info!("stopped");
            ExitCode::SUCCESS
        }
        _ = terminate.recv() => ExitCode::FAILURE,
        _ = interrupt.recv() => ExitCode::FAILURE,
    }
}
