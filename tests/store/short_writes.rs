//! A disk that takes a part of a write only: a child process that may not make files larger than so much, so that the
//! system itself cuts a write short in the middle of a page.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use bytes::Bytes;
use taskgate::store::embedded::{self, Embedded};
use taskgate::store::{Clock, Options, conformance};
use taskgate::task::{Event, Replaced, Task, TaskId, TaskStore as _, Timestamp};

const PLACE: &str = "STORE_OF_THE_SHORT_OF_ROOM";
const NAME: &str = "short_writes::b94_a_write_that_is_cut_short_leaves_what_was_told";
/// What a result is long, no divisor of a page or of the limit.
const BYTES: usize = 7_001;
/// How often in a row writing has to fail before the room comes back.
const FAILURES: usize = 5;

/// What the child says of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    NotCreated,
    NotStored,
    Stored,
}

#[tokio::test]
async fn b94_a_write_that_is_cut_short_leaves_what_was_told() {
    if let Ok(path) = std::env::var(PLACE) {
        return write_into_the_limit(Path::new(&path)).await;
    }
    // Blocks of 512 bytes: a little beyond a new file with its log, each time at another place of a page.
    for blocks in [601, 707, 1012] {
        let home = tempfile::tempdir().expect("a directory");
        let path = home.path().join("taskgate.db");
        Embedded::open(path.clone(), Options::default(), Clock::system()).await.expect("opened").close().await;
        let told = run(&path, blocks);
        let count = |what| told.iter().filter(|(_, told)| *told == what).count();
        let (stored, failed) = (count(Told::Stored), count(Told::NotCreated) + count(Told::NotStored));
        assert!(stored > 8 && failed == FAILURES, "{blocks}: {stored} stored, {failed} failed");

        let store = Embedded::open(path.clone(), Options::default(), Clock::system()).await.expect("opened");
        for (id, told) in told {
            let (task, result) = (store.get(id).await.expect("read"), store.get_result(id).await.expect("read"));
            let found = match task {
                None => Told::NotCreated,
                Some(task) if task.status.ended().is_none() => Told::NotStored,
                Some(_) => Told::Stored,
            };
            assert_eq!(found, told, "{blocks}: {id}");
            let kept = result.map(|result| result == vec![b'7'; BYTES]);
            assert_eq!(kept, (told == Told::Stored).then_some(true), "{blocks}: {id}");
        }
        store.close().await;
        assert_eq!(embedded::check(&path).expect("checked").damage, [""; 0]);
    }
}

/// Runs the child under a limit until writing has failed, lifts the limit, and returns what it told.
fn run(path: &Path, blocks: u32) -> Vec<(TaskId, Told)> {
    // Without the trap the signal of the limit ends the process.
    let limited = format!("trap '' XFSZ; ulimit -S -f {blocks}; exec \"$@\"");
    let mut child = Command::new("sh")
        .args(["-c", &limited, "sh"])
        .arg(std::env::current_exe().expect("this program"))
        .args(["--exact", NAME, "--nocapture"])
        .env(PLACE, path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("started");
    let mut told = Vec::new();
    for line in BufReader::new(child.stdout.take().expect("piped")).lines().map_while(Result::ok) {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["out-of-room", "."] => lift(&mut child),
            ["not-created", id, "."] => told.push((id.parse().expect("an id"), Told::NotCreated)),
            ["not-stored", id, "."] => told.push((id.parse().expect("an id"), Told::NotStored)),
            ["stored", id, "."] => told.push((id.parse().expect("an id"), Told::Stored)),
            _ => {}
        }
    }
    assert!(child.wait().expect("ended").success(), "the child says what went wrong");
    told
}

fn lift(child: &mut Child) {
    let pid = child.id().to_string();
    let lifted = Command::new("prlimit").args(["--pid", &pid, "--fsize=unlimited:"]).status();
    assert!(lifted.expect("prlimit is there (util-linux)").success());
    writeln!(child.stdin.take().expect("piped"), "go on").expect("it listens");
}

async fn write_into_the_limit(path: &Path) {
    let store = Embedded::open(path.to_owned(), Options::default(), Clock::system()).await.expect("opened");
    let mut failures = 0;
    while failures < FAILURES {
        if write_one(&store).await != Told::Stored {
            failures += 1;
        }
    }
    say("out-of-room .");
    std::io::stdin().read_line(&mut String::new()).expect("told to go on");
    for _ in 0..5 {
        assert_eq!(write_one(&store).await, Told::Stored, "the room is back");
    }
    store.close().await;
}

async fn write_one(store: &Embedded) -> Told {
    let task = conformance::sample(1, 1_000);
    let told = attempt(store, &task).await;
    let word = match told {
        Told::NotCreated => "not-created",
        Told::NotStored => "not-stored",
        Told::Stored => "stored",
    };
    say(&format!("{word} {} .", task.id));
    told
}

async fn attempt(store: &Embedded, task: &Task) -> Told {
    if store.create(task).await.is_err() {
        return Told::NotCreated;
    }
    let done = Event::Completed { bytes: BYTES as u64, tool_error: None };
    let done = task.apply(done, Timestamp(2_000)).expect("it works");
    match store.replace(&done, Some(Bytes::from(vec![b'7'; BYTES]))).await {
        Ok(replaced) => {
            assert_eq!(replaced, Replaced::Done);
            Told::Stored
        }
        Err(_) => Told::NotStored,
    }
}

/// On a line of its own, whatever the harness writes between.
fn say(line: &str) {
    let mut out = std::io::stdout();
    writeln!(out, "\n{line}").and_then(|()| out.flush()).expect("somebody reads");
}
