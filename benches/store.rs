//! The engines side by side: durable creations at the trait, and what 100,000 finished tasks cost.
//!
//! `cargo bench --bench store [-- --judge]`; with `--judge`, status 1 below the floors. Ratios are what counts: the
//! figures themselves are those of the machine and its disk.

#![allow(clippy::print_stdout)]

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use taskgate::store::{Clock, Embedded, Memory, Options, conformance};
use taskgate::task::{Event, Task, TaskStore, Timestamp};
use tokio::time::Instant;

const RUNS: usize = 5;
/// How long each count takes.
const SPAN: Duration = Duration::from_millis(700);
const CALLERS: [usize; 3] = [1, 64, 512];
const MANY: usize = 100_000;
const FEW: usize = 100;
const POLLS: u32 = 3_000;

fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("threads");
    let mut floors = Floors::default();
    runtime.block_on(async {
        rates(&mut floors).await;
        many(&mut floors).await;
    });
    let judged = std::env::args().any(|argument| argument == "--judge");
    if judged && floors.missed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

#[derive(Default)]
struct Floors {
    missed: usize,
}

impl Floors {
    fn hold(&mut self, what: &str, holds: Result<(), ()>) {
        self.missed += usize::from(holds.is_err());
        println!("{}  {what}", if holds.is_ok() { "ok  " } else { "MISS" });
    }
}

fn options() -> Options {
    Options { max_retained: 64 << 30, ..Options::default() }
}

async fn embedded(path: &Path) -> Embedded {
    Embedded::open(path.to_owned(), options(), Clock::system()).await.expect("opened")
}

fn at_least(value: f64, floor: f64) -> Result<(), ()> {
    if value >= floor { Ok(()) } else { Err(()) }
}

async fn rates(floors: &mut Floors) {
    let home = tempfile::tempdir_in(".").expect("a directory on this disk");
    // By engine and number of callers.
    let mut rates: [[Vec<f64>; 3]; 2] = Default::default();
    for run in 0..RUNS {
        for (at, callers) in CALLERS.into_iter().enumerate() {
            let file = Arc::new(embedded(&home.path().join(format!("{run}-{callers}.db"))).await);
            rates[0][at].push(rate(file.clone(), callers).await);
            file.close().await;
            let memory = Arc::new(Memory::new(options(), Clock::system()));
            rates[1][at].push(rate(memory, callers).await);
        }
    }
    let [file, memory] = rates.map(|engine| engine.map(median));
    println!("durable creations per second, medians of {RUNS}");
    println!("callers   embedded     memory   of memory   of one caller");
    for (at, callers) in CALLERS.into_iter().enumerate() {
        let (of_memory, of_one) = (file[at] / memory[at], file[at] / file[0]);
        println!("{callers:>7} {:>10.0} {:>10.0} {of_memory:>11.4} {of_one:>15.1}", file[at], memory[at]);
    }
    floors.hold("64 callers: at least 5 times the rate of one", at_least(file[1] / file[0], 5.0));
    floors.hold("512 callers: at least 8 times the rate of one", at_least(file[2] / file[0], 8.0));
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

async fn rate(store: Arc<dyn TaskStore>, callers: usize) -> f64 {
    let began = Instant::now();
    let until = began + SPAN;
    let caller = async |store: Arc<dyn TaskStore>| {
        let mut count = 0_u32;
        while Instant::now() < until {
            store.create(&conformance::sample(1, 1_000)).await.expect("created");
            count += 1;
        }
        count
    };
    let counts = futures_util::future::join_all((0..callers).map(|_| caller(store.clone()))).await;
    f64::from(counts.into_iter().sum::<u32>()) / began.elapsed().as_secs_f64()
}

async fn many(floors: &mut Floors) {
    let home = tempfile::tempdir_in(".").expect("a directory on this disk");
    let (large, small) = (home.path().join("many.db"), home.path().join("few.db"));
    let ids = [fill(&large, MANY).await, fill(&small, FEW).await];
    let began = Instant::now();
    let many = embedded(&large).await;
    let opened = began.elapsed();
    let few = embedded(&small).await;
    let mut costs: [Vec<f64>; 2] = Default::default();
    for _ in 0..RUNS {
        costs[0].push(poll(&many, &ids[0]).await);
        costs[1].push(poll(&few, &ids[1]).await);
    }
    let [large_cost, small_cost] = costs.map(median);
    let size = || std::fs::metadata(&large).map_or(0, |file| file.len());
    let full = size();
    let began = Instant::now();
    many.purge(Timestamp(u64::MAX / 4)).await.expect("purged");
    many.purge(Timestamp(u64::MAX / 4)).await.expect("purged");
    let pruned = began.elapsed();
    let empty = size();
    println!("{MANY} finished tasks: opened in {opened:.0?}; a poll {large_cost:.1} µs, with {FEW} {small_cost:.1} µs");
    println!("pruned in {pruned:.1?}: {} MiB became {} MiB", full >> 20, empty >> 20);
    floors.hold("opened in less than 2 s", at_least(2.0, opened.as_secs_f64()));
    floors.hold("a poll costs less than 1.5 times as much", at_least(1.5, large_cost / small_cost));
    #[allow(clippy::cast_precision_loss)]
    floors.hold("pruning gives nine tenths of the space back", at_least(0.1, empty as f64 / full as f64));
    many.close().await;
    few.close().await;
}

/// So many finished tasks with results of 1 KiB.
async fn fill(path: &Path, count: usize) -> Vec<Task> {
    let store = embedded(path).await;
    let result = Bytes::from(vec![b'7'; 1024]);
    let mut tasks = Vec::new();
    while tasks.len() < count {
        let finish = async || {
            let task = conformance::sample(1, 1_000);
            store.create(&task).await.expect("created");
            let done = Event::Completed { bytes: 1024, tool_error: None };
            let done = task.apply(done, Timestamp(2_000)).expect("it works");
            store.replace(&done, Some(result.clone())).await.expect("stored");
            done
        };
        tasks.extend(futures_util::future::join_all((0..500.min(count)).map(|_| finish())).await);
    }
    store.close().await;
    tasks
}

/// Microseconds that a read takes.
async fn poll(store: &Embedded, tasks: &[Task]) -> f64 {
    let began = Instant::now();
    let step = (tasks.len() / POLLS as usize).max(1);
    for task in tasks.iter().step_by(step).cycle().take(POLLS as usize) {
        assert!(store.get(task.id).await.expect("read").is_some());
    }
    began.elapsed().as_secs_f64() * 1e6 / f64::from(POLLS)
}
