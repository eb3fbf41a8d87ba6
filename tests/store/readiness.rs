//! Whether a process says that it is ready, by what its store does.

use std::time::Duration;

use taskgate::store::embedded::Fault;
use taskgate::store::{ApplyError, Clock, Embedded, Options, Tasks};
use taskgate::task::{Event, StoreError, Task};
use taskgate::telemetry::Readiness;
use taskgate::telemetry::metrics::Metrics;
use tokio::time::sleep;

use crate::home::{Home, working};

/// Longer than from one look at the store to the next.
const LOOKS: Duration = Duration::from_millis(1_200);

async fn tasks(home: &Home) -> Tasks {
    let clock = Clock::system();
    let options = Options { faults: home.faults.clone(), ..Options::default() };
    let store = Embedded::open(home.path(), options, clock).await.expect("opened");
    Tasks::new(store, clock, Metrics::new()).with_lease(Duration::from_millis(90))
}

/// Tells a story while readiness is watched, and the lease on what runs is renewed.
async fn watched(tasks: &Tasks, story: impl AsyncFnOnce(Readiness)) {
    let readiness = Readiness::new();
    tokio::select! {
        () = tasks.watch(&readiness) => unreachable!("it goes on for ever"),
        () = tasks.hold() => unreachable!("it goes on for ever"),
        () = story(readiness.clone()) => {}
    }
    tasks.close().await;
}

async fn settled(readiness: &Readiness, reasons: &[&str]) {
    let settles = async {
        while readiness.reasons() != reasons {
            sleep(Duration::from_millis(10)).await;
        }
    };
    let in_time = tokio::time::timeout(Duration::from_secs(10), settles).await;
    in_time.unwrap_or_else(|_| panic!("it is {:?}, not {reasons:?}", readiness.reasons()));
}

/// A task that this process runs.
async fn running(tasks: &Tasks) -> Task {
    let task = Task { lease: Some(tasks.lease()), ..working() };
    tasks.create(&task).await.expect("created");
    task
}

#[tokio::test]
async fn b94_a_disk_that_fails_makes_it_unready_until_it_works() {
    let home = Home::new();
    let tasks = tasks(&home).await;
    watched(&tasks, async |readiness| {
        let task = running(&tasks).await;
        home.faults.set(Fault::Broken);
        let lost = tasks.report(task.id, Event::Cancelled, None).await;
        assert!(matches!(lost, Err(ApplyError::Store(StoreError::Unavailable(_)))), "{lost:?}");
        settled(&readiness, &["store unavailable"]).await;
        home.faults.set(Fault::None);
        // Nobody writes, and it is noticed all the same.
        settled(&readiness, &[]).await;
        tasks.report(task.id, Event::Cancelled, None).await.expect("stored");
    })
    .await;
}

#[tokio::test]
async fn b94_what_writes_nothing_does_not_make_it_ready() {
    let home = Home::new();
    let tasks = tasks(&home).await;
    watched(&tasks, async |readiness| {
        let task = running(&tasks).await;
        home.faults.set(Fault::Broken);
        tasks.report(task.id, Event::Cancelled, None).await.expect_err("it is not stored");
        settled(&readiness, &["store unavailable"]).await;
        let until = tokio::time::Instant::now() + LOOKS;
        let mut went_well = 0;
        while tokio::time::Instant::now() < until {
            // There is nothing to claim, and nothing to write, unless it shares its transaction with what there is.
            went_well += usize::from(tasks.claim(9).await == Ok(vec![]));
            assert!(tasks.get(task.id).await.is_ok(), "what was written can be read");
            assert_eq!(readiness.reasons(), ["store unavailable"]);
            sleep(Duration::from_millis(2)).await;
        }
        assert!(went_well > 10, "{went_well}");
    })
    .await;
}

#[tokio::test]
async fn b94_reads_that_fail_make_it_unready_until_they_work() {
    let home = Home::new();
    let tasks = tasks(&home).await;
    watched(&tasks, async |readiness| {
        let task = running(&tasks).await;
        home.faults.set(Fault::Unreadable);
        let unread = tasks.get(task.id).await;
        assert!(matches!(unread, Err(StoreError::Unavailable(_))), "{unread:?}");
        settled(&readiness, &["store unavailable"]).await;
        // Writes go on, and say nothing of reads.
        let until = tokio::time::Instant::now() + LOOKS;
        while tokio::time::Instant::now() < until {
            tasks.create(&working()).await.expect("created");
            assert_eq!(readiness.reasons(), ["store unavailable"]);
            sleep(Duration::from_millis(20)).await;
        }
        home.faults.set(Fault::None);
        settled(&readiness, &[]).await;
        assert!(tasks.get(task.id).await.is_ok());
    })
    .await;
}
