//! What only an engine with a file has: it survives kills and restarts, and says what is wrong with its file.

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use taskgate::store::embedded::{self, Fault};
use taskgate::store::{Clock, Embedded, Options, conformance};
use taskgate::task::{
    ClaimQuery, Event, Execution, Fingerprint, Lease, Replaced, ReplicaId, StoreError, Task, TaskId, TaskStore,
    Timestamp,
};

use crate::home::{Home, done, finish, working};

#[tokio::test]
async fn b03_everything_is_there_after_a_restart() {
    let home = Home::new();
    let store = home.open().await;
    let gone = ReplicaId::random();
    let task = Task { lease: Some(Lease { holder: gone, until: Timestamp(u64::MAX / 4) }), ..working() };
    store.create(&task).await.expect("created");
    let (ended, result) = finish(&store, 1_000).await;
    let (id, session) = (Fingerprint([3; 16]), conformance::session(9_000));
    store.put_session(id, &session).await.expect("stored");
    let secret = store.secret().await.expect("there is one");
    store.close().await;
    let late = store.create(&working()).await;
    assert!(matches!(late, Err(StoreError::Unavailable(_))), "closed: {late:?}");
    assert!(store.get(task.id).await.is_err());
    assert_eq!(home.bytes("-wal"), 0, "nothing is left beside the file");

    let store = home.open().await;
    assert_eq!(store.get(ended.id).await, Ok(Some(ended.clone())));
    assert_eq!(store.get_result(ended.id).await, Ok(Some(result)));
    assert_eq!(store.get_session(id).await, Ok(Some(session)));
    assert_eq!(store.secret().await, Ok(secret));
    let (now, until) = (Timestamp(1_500), Timestamp(2_500));
    let claim = ClaimQuery { now, holder: ReplicaId::random(), until, limit: 9 };
    let taken = store.claim(&claim).await.expect("claimed");
    assert_eq!(taken.len(), 1, "whoever ran it is gone with the process, whatever the lease said");
    assert_eq!((taken[0].id, &taken[0].execution), (task.id, &Execution::LOCAL));
}

#[tokio::test]
async fn b57_what_was_created_survives_a_kill() {
    const PLACE: &str = "STORE_OF_THE_CHILD";
    if let Ok(path) = std::env::var(PLACE) {
        return create_until_killed(Path::new(&path)).await;
    }
    let home = Home::new();
    for _ in 0..3 {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "embedded::b57_what_was_created_survives_a_kill", "--nocapture"])
            .env(PLACE, home.path())
            .stdout(Stdio::piped())
            .spawn()
            .expect("started");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines().map_while(Result::ok);
        // Ids of tasks and of results that were told to be stored; the last line may be cut.
        let told: Vec<TaskId> =
            lines.filter_map(|line| line.strip_prefix("stored ")?.strip_suffix(" .")?.parse().ok()).take(40).collect();
        child.kill().expect("killed");
        child.wait().expect("ended");
        assert_eq!(told.len(), 40);
        let store = home.open().await;
        for id in told {
            let task = store.get(id).await.expect("read");
            assert!(task.is_some_and(|task| task.status.ended().is_some()), "{id} was told and is lost");
            assert_eq!(store.get_result(id).await.expect("read").map(|result| result.len()), Some(10_000));
        }
        store.close().await;
    }
}

async fn create_until_killed(path: &Path) {
    use std::io::Write as _;
    let store = Arc::new(Embedded::open(path.to_owned(), Options::default(), Clock::system()).await.expect("opened"));
    loop {
        let all = (0..8).map(|_| finish(&store, 10_000));
        for (task, _) in futures_util::future::join_all(all).await {
            let mut out = std::io::stdout();
            writeln!(out, "\nstored {} .", task.id).and_then(|()| out.flush()).expect("somebody reads");
        }
    }
}

#[tokio::test]
async fn one_process_has_the_file() {
    let home = Home::new();
    let first = home.open().await;
    let second = home.refusal().await;
    let (path, process) = (home.path(), std::process::id());
    assert!(second.contains(&path.display().to_string()) && second.contains(&process.to_string()), "{second}");
    assert!(second.contains("in use"), "{second}");
    first.close().await;
    home.open().await.close().await;
}

#[tokio::test]
async fn what_is_not_ours_is_refused_with_the_way_out() {
    let home = Home::new();
    let sql = |text: &str| rusqlite::Connection::open(home.path()).unwrap().execute_batch(text).unwrap();
    home.open().await.close().await;
    sql("PRAGMA user_version = 99");
    let newer = home.refusal().await;
    assert!(newer.contains("newer taskgate (schema 99, this one knows 2)"), "{newer}");
    assert!(embedded::check(&home.path()).unwrap_err().to_string().contains("newer"));
    std::fs::remove_file(home.path()).unwrap();

    sql("CREATE TABLE theirs (x)");
    assert!(home.refusal().await.contains("another program"));
    sql("INSERT INTO theirs VALUES (1)");
    std::fs::remove_file(home.path()).unwrap();

    std::fs::write(home.path(), vec![b'?'; 10_000]).unwrap();
    let garbage = home.refusal().await;
    assert!(garbage.contains("damaged") && garbage.contains("taskgate store check"), "{garbage}");
    assert_eq!(std::fs::read(home.path()).unwrap(), vec![b'?'; 10_000], "and is left as it is");
    std::fs::remove_file(home.path()).unwrap();

    std::fs::create_dir(home.path()).unwrap();
    let directory = home.refusal().await;
    assert!(directory.contains("cannot be opened"), "{directory}");
}

#[tokio::test]
async fn b94_a_damaged_file_is_noticed_and_what_is_left_can_be_saved() {
    let home = Home::new();
    let store = home.open().await;
    for _ in 0..40 {
        finish(&store, 20_000).await;
    }
    store.close().await;
    assert_eq!(embedded::check(&home.path()).unwrap().damage, [""; 0]);
    let mut bytes = std::fs::read(home.path()).unwrap();
    // The middle of the file: pages of results.
    let middle = bytes.len() / 2 / 4096 * 4096;
    bytes[middle..middle + 3 * 4096].fill(0xa5);
    std::fs::write(home.path(), &bytes).unwrap();
    let refusal = home.refusal().await;
    assert!(refusal.contains("damaged") && refusal.contains("export"), "{refusal}");
    assert!(!embedded::check(&home.path()).unwrap().damage.is_empty());
    let mut out = Vec::new();
    let (written, _) = embedded::export(&home.path(), &mut out).unwrap();
    assert!((30..=40).contains(&written), "{written}");
    assert_eq!(String::from_utf8(out).unwrap().lines().count() as u64, written);
}

#[tokio::test]
async fn only_its_owner_may_read_it() {
    let home = Home::new();
    std::fs::write(home.path(), "").unwrap();
    std::fs::set_permissions(home.path(), std::fs::Permissions::from_mode(0o664)).unwrap();
    let store = home.open().await;
    finish(&store, 10).await;
    let mut seen = Vec::new();
    for entry in std::fs::read_dir(home.directory.path()).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{name}");
        seen.push(name);
    }
    seen.sort();
    assert_eq!(seen, ["taskgate.db", "taskgate.db-shm", "taskgate.db-wal", "taskgate.db.lock"]);
    store.close().await;
}

#[tokio::test]
async fn b94_trouble_is_told_and_passes() {
    let home = Home::new();
    let store = home.open().await;
    let (known, result) = finish(&store, 100).await;
    for (fault, said) in
        [(Fault::Full, "full"), (Fault::ReadOnly, "cannot be written"), (Fault::Broken, "the disk failed")]
    {
        let task = working();
        store.create(&task).await.expect("created");
        home.faults.set(fault);
        let large = store.replace(&done(&task, 1 << 20), Some(Bytes::from(vec![b'1'; 1 << 20]))).await;
        assert!(matches!(&large, Err(StoreError::Unavailable(why)) if why.contains(said)), "{fault:?}: {large:?}");
        assert_eq!(store.get(known.id).await, Ok(Some(known.clone())), "{fault:?}: reads go on");
        assert_eq!(store.get_result(known.id).await, Ok(Some(result.clone())));
        assert_eq!(store.get(task.id).await, Ok(Some(task.clone())), "{fault:?}: nothing of it is stored");
        home.faults.set(Fault::None);
        assert_eq!(store.replace(&done(&task, 2), Some("{}".into())).await, Ok(Replaced::Done), "{fault:?} passes");
    }
    store.close().await;
    assert_eq!(embedded::check(&home.path()).unwrap().damage, [""; 0]);
}

#[tokio::test]
async fn b94_what_does_not_fit_spoils_nothing_else() {
    let home = Home::new();
    let store = home.open().await;
    let large = working();
    store.create(&large).await.expect("created");
    let tasks: Vec<Task> = (0..20).map(|_| working()).collect();
    for task in &tasks {
        store.create(task).await.expect("created");
    }
    home.faults.set(Fault::Full);
    let small = futures_util::future::join_all(tasks.iter().map(async |task| {
        store.replace(&task.apply(Event::Cancelled, Timestamp(2_000)).expect("it works"), None).await
    }));
    let ended = done(&large, 1 << 20);
    let (large, small) = tokio::join!(store.replace(&ended, Some(Bytes::from(vec![b'1'; 1 << 20]))), small);
    assert!(large.is_err());
    assert!(small.iter().all(|small| *small == Ok(Replaced::Done)), "{small:?}");
}

#[tokio::test]
async fn pruning_gives_the_space_back_while_others_write() {
    let home = Home::new();
    let store = home.open().await;
    for _ in 0..100 {
        finish(&store, 200_000).await;
    }
    store.purge(Timestamp(3_000)).await.expect("purged");
    let full = home.bytes("");
    assert!(full + home.bytes("-wal") > 20_000_000, "{full}");
    let others = async {
        for _ in 0..20 {
            finish(&store, 100).await;
        }
    };
    let (purged, ()) = tokio::join!(store.purge(Timestamp(12_000)), others);
    assert!(purged.expect("purged").results >= 100);
    let purged = store.purge(Timestamp(22_000)).await.expect("purged");
    assert_eq!(purged.records, 120);
    let (empty, log) = (home.bytes(""), home.bytes("-wal"));
    assert!(empty < 2_000_000 && log <= 16 << 20, "{full} bytes became {empty}, and {log} of the log");
    store.close().await;
}

#[tokio::test]
async fn large_results_are_read_while_others_write() {
    let home = Home::new();
    let store = Arc::new(home.open().await);
    let (large, result) = finish(&store, 20 << 20).await;
    let reads = async {
        for _ in 0..5 {
            assert_eq!(store.get_result(large.id).await.expect("read").as_ref(), Some(&result));
        }
    };
    let writes = async {
        for _ in 0..50 {
            let (task, _) = finish(&store, 2_000).await;
            assert_eq!(store.get(task.id).await, Ok(Some(task)), "what was written is read at once");
        }
    };
    tokio::join!(reads, writes, async { drop(finish(&store, 20 << 20).await) });
    store.close().await;
}

#[tokio::test]
async fn a_slow_disk_delays_nobody_who_reads() {
    let home = Home::new();
    let store = home.open().await;
    let (known, _) = finish(&store, 100).await;
    home.faults.set(Fault::Slow(Duration::from_millis(300)));
    let task = working();
    tokio::select! {
        biased;
        _ = store.create(&task) => panic!("a commit waits for its sync"),
        () = async {
            for _ in 0..20 {
                assert_eq!(store.get(known.id).await, Ok(Some(known.clone())));
            }
        } => {}
    }
    store.close().await;
}

#[tokio::test]
async fn an_export_has_results_and_no_secrets() {
    let home = Home::new();
    let store = home.open().await;
    let (ended, _) = finish(&store, 3).await;
    let secret = taskgate::task::Sealed("hunter2".into());
    store.create(&Task { execution: Execution::Local { repeat: Some(secret) }, ..working() }).await.expect("created");
    // As an upstream may have laid it out: the breaks in it stand between values, those of the text are escaped.
    let (wide, text) = (working(), "{\n  \"a\": [1,\r\n 2],\n \"b\": \"x\\ny\"\n}");
    store.create(&wide).await.expect("created");
    let laid_out = done(&wide, text.len());
    assert_eq!(store.replace(&laid_out, Some(text.into())).await, Ok(Replaced::Done));
    let mut out = Vec::new();
    // While the store is in use.
    assert_eq!(embedded::export(&home.path(), &mut out).unwrap(), (3, vec![]));
    store.close().await;
    let text = String::from_utf8(out).unwrap();
    assert_eq!(text.split(['\r', '\n']).count(), 3 + 1, "a line for each: {text}");
    let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&lines[0]["number"], &lines[0]["id"]), (&1.into(), &ended.id.short().into()));
    assert!(!text.contains(&ended.id.to_string()), "whoever has a whole id may read a job: {text}");
    assert_eq!((&lines[0]["status"], &lines[0]["result"]), (&"completed".into(), &777.into()));
    assert_eq!((&lines[1]["status"], lines[1].get("result")), (&"working".into(), None));
    assert_eq!(lines[2]["result"], serde_json::json!({"a": [1, 2], "b": "x\ny"}));
    assert!(!text.contains("hunter2") && !text.contains("0101010101"), "{text}");
}
