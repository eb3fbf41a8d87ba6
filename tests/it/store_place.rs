//! Which file `taskgate store` looks at: the one that `run` would use with the same arguments, wherever they come from.
//!
//! An operator who looks at another store than the one that is served believes what is not so, or prunes it.

use std::path::Path;

use crate::support::process::run_in;

const BESIDE: &str = "[store]\npath = \"beside.db\"\n[[upstream]]\nurl = \"http://127.0.0.1:1/mcp\"\n";
/// As in the image: the upstream comes from a variable.
const NAMED: &str = "[store]\npath = \"named.db\"\n";
const UPSTREAM: (&str, &str) = ("TASKGATE_UPSTREAM", "http://127.0.0.1:1/mcp");
const CONFIG: (&str, &str) = ("TASKGATE_CONFIG", "named.toml");

/// Variables, flags, and the file that they mean.
type Case<'a> = (&'a [(&'a str, &'a str)], &'a [&'a str], &'a str);

/// What every action of `taskgate store` says: its status, and what is on stderr.
async fn looked_at(home: &Path, variables: &[(&str, &str)], flags: &[&str]) -> (i32, String) {
    let mut said = Vec::new();
    for action in ["check", "export", "prune"] {
        let output = run_in(home, variables, &[&["store", action], flags].concat()).await;
        said.push((output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap()));
    }
    assert!(said.iter().all(|other| *other == said[0]), "{said:?}");
    said.remove(0)
}

#[tokio::test]
async fn the_file_is_the_one_that_run_would_use() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    std::fs::write(home.join("taskgate.toml"), BESIDE).unwrap();
    std::fs::write(home.join("named.toml"), NAMED).unwrap();
    let cases: [Case<'_>; 9] = [
        (&[], &[], "beside.db"),
        (&[UPSTREAM], &[], "taskgate.db"),
        (&[("TASKGATE_UPSTREAM", "")], &[], "beside.db"),
        (&[], &["--upstream", UPSTREAM.1], "taskgate.db"),
        (&[CONFIG, UPSTREAM], &[], "named.db"),
        (&[("TASKGATE_CONFIG", ""), ("TASKGATE_STORE", "")], &[], "beside.db"),
        (&[UPSTREAM], &["-c", "named.toml"], "named.db"),
        (&[CONFIG, UPSTREAM, ("TASKGATE_STORE", "given.db")], &[], "given.db"),
        (&[("TASKGATE_STORE", "given.db")], &["--store", "flag.db"], "flag.db"),
    ];
    for (variables, flags, file) in cases {
        let run = run_in(home, variables, &[&["check"], flags].concat()).await;
        let summary = String::from_utf8(run.stdout).unwrap();
        assert!(summary.contains(&format!("store     {file}\n")), "{variables:?} {flags:?}: {summary}");
        let (status, said) = looked_at(home, variables, flags).await;
        assert_eq!(status, 1, "{variables:?} {flags:?}: {said}");
        assert!(said.contains(&format!("{file} cannot be opened")), "{variables:?} {flags:?}: {said}");
    }
}

#[tokio::test]
async fn what_else_is_wrong_with_a_configuration_hides_no_file() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    let (_, said) = looked_at(home, &[], &[]).await;
    assert!(said.contains("taskgate.db cannot be opened"), "what `run --upstream` uses here: {said}");
    let unset = "[server]\nsecret = { env = \"TASKGATE_NOT_SET\" }\n[store]\npath = \"named.db\"\n";
    std::fs::write(home.join("taskgate.toml"), unset).unwrap();
    let (status, said) = looked_at(home, &[], &[]).await;
    assert!(status == 1 && said.contains("named.db cannot be opened"), "{said}");
    for (text, word) in [("[store]\npath = 7\n", "store.path"), ("[store\n", "not TOML"), ("[store]\nfile = 1", "file")]
    {
        std::fs::write(home.join("taskgate.toml"), text).unwrap();
        let (status, said) = looked_at(home, &[], &[]).await;
        assert!(status == 78 && said.contains(word), "{text:?}: {said}");
        let (_, said) = looked_at(home, &[], &["--store", "flag.db"]).await;
        assert!(said.contains("flag.db cannot be opened"), "{text:?}: {said}");
    }
    let (status, said) = looked_at(home, &[], &["-c", "nowhere.toml"]).await;
    assert!(status == 78 && said.contains("nowhere.toml: cannot be read"), "{said}");
    let (status, said) = looked_at(home, &[], &["--store", "memory"]).await;
    assert!(status == 1 && said.contains("the store is memory"), "{said}");
}
