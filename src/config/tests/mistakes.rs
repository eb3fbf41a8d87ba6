//! What is refused, and where the refusal points.
//!
//! A person finds a mistake by its line and key: both are part of what is tested.

use proptest::prelude::*;

use super::*;

/// The problems of a text, as line and key.
fn bad(text: &str) -> Vec<(Option<usize>, String)> {
    let problems = Config::parse(text, &none()).expect_err(text);
    problems.0.into_iter().map(|problem| (problem.line, problem.key)).collect()
}

#[test]
fn ten_mistakes_are_ten_problems() {
    let text = r#"[server]
listen = "localhost:80"
keepalive = "2m"
maxbody = "1MiB"
[tasks]
threshold = "4 sec"
mode = "asink"
max_running = "many"
max_result = 1.5
[jobs]
wait = "26s"
list_tool = "cancel_job"
[[upstream]]
url = "ftp://a"
"#;
    let expected = [
        (2, "server.listen"),
        (3, "server.keepalive"),
        (4, "server.maxbody"),
        (6, "tasks.threshold"),
        (7, "tasks.mode"),
        (8, "tasks.max_running"),
        (9, "tasks.max_result"),
        (11, "jobs.wait"),
        (12, "jobs.list_tool"),
        (14, "upstream[0].url"),
    ];
    assert_eq!(bad(text), expected.map(|(line, key)| (Some(line), key.to_owned())));
    let message = message(text);
    for part in ["did you mean `max_body`?", "did you mean \"async\"?", "127.0.0.1:80", "at most 25s", "line 14: "] {
        assert!(message.contains(part), "{part} in {message}");
    }
}

/// One wrong line after an upstream each: the text, the key that is named, a part of what is said.
const MISTAKES: &[(&str, &str, &str)] = &[
    ("[server]\nlisten = 80", "server.listen", "is an integer"),
    ("[server]\nsecret = \"short\"", "server.secret", "16 bytes"),
    ("[server]\nsecret = { env = \"TASKGATE_TEST_UNSET\" }", "server.secret", "not set"),
    ("[server]\nsecret = { file = \"/nowhere/at/all\" }", "server.secret", "cannot be read"),
    ("[server]\nsecret = { env = \"A\", file = \"B\" }", "server.secret", "another table"),
    ("[server]\nsecret = { env = \"A=B\" }", "server.secret", "not set"),
    ("[server]\nallowed_origins = [\"https://a/b\"]", "server.allowed_origins", "an origin"),
    ("[server]\ntrusted_proxies = [\"10.0.0.0/33\"]", "server.trusted_proxies", "10.0.0.0/33"),
    ("[server]\npublic_url = \"example.com\"", "server.public_url", "scheme"),
    ("[server]\nmax_sessions = 0", "server.max_sessions", "from 1"),
    ("[server]\nmax_sessions = -1", "server.max_sessions", "from 1"),
    ("[server]\nmax_sessions = 99999999999999999999", "server.max_sessions", "from 1"),
    ("[server]\nheader_timeout = \"0s\"", "server.header_timeout", "more than zero"),
    ("[server]\nsession_idle = \"5M\"", "server.session_idle", "minutes"),
    ("[server]\nsession_idle = \"-5m\"", "server.session_idle", "a duration"),
    ("[server]\nsession_idle = \"99999d\"", "server.session_idle", "365d"),
    ("[server]\nkeepalive = \"1ms\"", "server.keepalive", "at least 10ms"),
    ("[server]\nmax_body = \"1.5MiB\"", "server.max_body", "a size"),
    ("[server]\nmax_body = \"0B\"", "server.max_body", "from 1B"),
    ("[server]\nmax_body = \"99999999999999999999TiB\"", "server.max_body", "1TiB"),
    ("[server]\nmax_body = \"32\"", "server.max_body", "MiB"),
    ("[server]\ntls = { cert = \"a\" }", "server.tls", "not in this version"),
    ("[admin]\nlisten = \"0.0.0.0:9090\"", "admin.listen", "no token"),
    ("[admin]\nlisten = \"127.0.0.1:8080\"", "admin.listen", "where the server listens"),
    ("[admin]\nmetrics_token = true", "admin.metrics_token", "needs a token"),
    ("[admin]\ntoken = \"a b\"", "admin.token", "visible ASCII"),
    ("[log]\nlevel = \"inof\"", "log.level", "did you mean info?"),
    ("[log]\nlevel = \"a=b=c\"", "log.level", "directives"),
    ("[store]\nkind = \"redis\"", "store.kind", "not in this version"),
    ("[store]\nkind = \"disk\"", "store.kind", "\"embedded\" or \"memory\""),
    ("[store]\nurl = \"redis://h\"", "store.url", "not in this version"),
    ("[store]\npath = \"\"", "store.path", "is empty"),
    ("[tasks]\ninput_timeout = \"5x\"", "tasks.input_timeout", "5x"),
    ("[tasks]\ncoalesce = \"yes\"", "tasks.coalesce", "true or false"),
    ("[tasks]\nttl = \"48h\"", "tasks.ttl", "max_ttl"),
    ("[tasks]\nmax_ttl = \"1m\"", "tasks.max_ttl", "ttl is 1h"),
    ("[tasks]\nowner = \"me\"", "tasks.owner", "\"principal\""),
    ("[jobs]\nresult_tool = \"a b\"", "jobs.result_tool", "letters"),
    ("[jobs]\nresult_tool = \"list_jobs\"", "jobs.result_tool", "two job tools"),
    ("[auth]\nkeys = []", "auth", "not in this version"),
    ("[tasks]\ncoalese = true", "tasks.coalese", "did you mean `coalesce`?"),
    ("[tasks]\nshared = true", "tasks.shared", "one of mode, threshold"),
    ("[taks]", "taks", "did you mean `tasks`?"),
    ("[upstream.more]", "upstream[0].more", "unknown key"),
    ("bridge = \"on\"", "upstream[0].bridge", "\"auto\", \"always\""),
    ("name = \"\"", "upstream[0].name", "letters"),
    ("path = \"mcp\"", "upstream[0].path", "start with /"),
    ("path = \"/.well-known/x\"", "upstream[0].path", "reserved"),
    ("path = \"/a//b\"", "upstream[0].path", "empty part"),
    ("path = \"/a?b\"", "upstream[0].path", "characters"),
    ("credential_header = \"a b\"", "upstream[0].credential_header", "name of a header"),
    ("headers = { Host = \"a\" }", "upstream[0].headers", "by taskgate itself"),
    ("headers = { X = \"a\\nb\" }", "upstream[0].headers", "characters"),
    ("headers = { X-A = \"a\", x-a = \"b\" }", "upstream[0].headers", "twice"),
    ("headers = [\"a\"]", "upstream[0].headers", "is an array"),
    ("[upstream.rule]\ntool = \"a\"", "upstream[0].rule", "[[upstream.rule]]"),
    ("[[upstream.rule]]\nmode = \"sync\"", "upstream[0].rule[0].tool", "is missing"),
    ("[[upstream.rule]]\ntool = \"[a\"", "upstream[0].rule[0].tool", "[a"),
    ("[[upstream.rule]]\ntool = []", "upstream[0].rule[0].tool", "is empty"),
    ("[[upstream.rule]]\ntool = \"a\"\nwhen = \"args.n >\"", "upstream[0].rule[0].when", "at character 9"),
    ("[[upstream.rule]]\ntool = \"a\"\nowner = \"id\"", "upstream[0].rule[0].owner", "[tasks]"),
    ("[[upstream.rule]]\ntool = \"a\"\ncoalesce = 1", "upstream[0].rule[0].coalesce", "true or false"),
    ("[[upstream.rule]]\ntool = \"a\"\nttl = \"25h\"", "upstream[0].rule[0].ttl", "max_ttl"),
    ("[[upstream]]\nname = \"b\"\nurl = \"http://b/\"\npath = \"/mcp/\"", "upstream[1].path", "another upstream"),
    ("[[upstream]]\npath = \"/b\"\nurl = \"http://b/\"", "upstream[1].name", "another upstream"),
    ("[[upstream]]\nname = \"b\"\npath = \"/b\"", "upstream[1].url", "is missing"),
];

#[test]
fn each_mistake_is_named() {
    for (line, key, said) in MISTAKES {
        let text = format!("{UPSTREAM}{line}\n");
        let found = bad(&text);
        assert_eq!(found.len(), 1, "{text}{}", message(&text));
        let last = text.lines().count();
        assert_eq!(found[0].1, *key, "{text}");
        assert!(found[0].0.is_some_and(|found| (4..=last).contains(&found)), "{text}{found:?}");
        assert!(message(&text).contains(*said), "{said:?} in {}", message(&text));
    }
}

#[test]
fn urls_are_refused_without_repeating_them() {
    for url in [
        "mcp",
        "/mcp",
        "ftp://hunter2",
        "http://",
        "http://u:hunter2@h/",
        "http://hunter2/#a",
        "http://hunter2:99999/",
        "http://hunter2:/",
    ] {
        let text = format!("[[upstream]]\nurl = \"{url}\"");
        assert_eq!(bad(&text), [(Some(2), "upstream[0].url".to_owned())], "{url}");
        assert!(!message(&text).contains("hunter2"), "{}", message(&text));
    }
}

#[test]
fn what_is_not_toml_is_reported_with_the_rest() {
    let text = format!("[server]\nlisten = \nkeepalive = \"1d\"\n[tasks\nmode = 1\n{UPSTREAM}");
    let lines: Vec<_> = bad(&text).into_iter().filter_map(|(line, _)| line).collect();
    assert!(lines.contains(&2) && lines.contains(&3) && lines.contains(&4), "{}", message(&text));
    assert_eq!(bad(&format!("{UPSTREAM}url = \"http://b/\"")), [(Some(4), String::new())]);
}

/// Keys are known by their place alone, so one wrong value beside them makes none of them unknown.
#[test]
fn every_key_is_known_whatever_else_is_wrong() {
    let broken = |text: &str, right: &str, wrong: &str| text.replace(right, wrong).replace("TOKEN_FILE", "/dev/null");
    let upstream = format!("{EVERY_KEY}headers = {{ X = \"a\" }}\n[[upstream.rule]]\ntool = \"a\"\n");
    for (right, wrong, line, key) in [
        ("https://host:1/x?key=1", "ftp://x/mcp", 45, "upstream[0].url"),
        ("\"/a/\"", "1", 44, "upstream[0].path"),
        ("\"[::1]:1\"", "\"x\"", 3, "server.listen"),
        ("\"0.0.0.0:2\"", "\"x\"", 15, "admin.listen"),
        ("\"async\"", "1", 25, "tasks.mode"),
        ("\"widen\"", "1", 39, "jobs.output_schema"),
    ] {
        let text = broken(&upstream, right, wrong);
        let found = bad(&text);
        let expected = [(Some(line), key.to_owned()), (Some(16), "admin.token".to_owned())];
        assert!(found.len() == 2 && expected.iter().all(|one| found.contains(one)), "{}", message(&text));
    }
}

#[test]
fn nothing_is_missed_in_what_is_not_toml() {
    for text in [
        "[[upstream]\nurl = \"http://a/\"\n".to_owned(),
        "[server]\nlisten = \"127.0.0.1:1\n".to_owned(),
        "[[upstream]]\nurl = http://a/\n".to_owned(),
        format!("{UPSTREAM}[[upstream.rule]]\ntool = run\n"),
        format!("[admin]\nlisten = \"0.0.0.0:1\"\nmetrics_token = true\ntoken = abc\n{UPSTREAM}"),
        format!("[tasks]\nmax_ttl = \"1m\"\nttl = 1m\n{UPSTREAM}"),
        format!("{UPSTREAM}[[upstream]]\nurl = \"http://b/\"\nname = b\npath = \"/b\"\n"),
    ] {
        let found = bad(&text);
        assert!(found.iter().all(|(_, key)| key.is_empty()), "{text}{}", message(&text));
    }
}

#[test]
fn what_is_wrong_is_not_compared_with_the_rest() {
    let rule = "[[upstream.rule]]\ntool = \"a\"\n";
    for (text, key) in [
        (format!("[tasks]\nttl = \"-1h\"\nmax_ttl = \"1m\"\n{UPSTREAM}"), "tasks.ttl"),
        (format!("[tasks]\nttl = \"48h\"\nmax_ttl = \"2 days\"\n{UPSTREAM}"), "tasks.max_ttl"),
        (format!("[tasks]\nmax_ttl = \"2 days\"\n{UPSTREAM}{rule}ttl = \"48h\"\n"), "tasks.max_ttl"),
        (format!("[server]\nlisten = \"x\"\n[admin]\nlisten = \"127.0.0.1:8080\"\n{UPSTREAM}"), "server.listen"),
        (format!("[server]\nlisten = \"127.0.0.1:9090\"\n[admin]\nlisten = \"x\"\n{UPSTREAM}"), "admin.listen"),
        (format!("[jobs]\nresult_tool = \"a b\"\nlist_tool = \"get_job_result\"\n{UPSTREAM}"), "jobs.result_tool"),
        (format!("{UPSTREAM}[[upstream]]\nurl = \"http://b/\"\nname = \"b c\"\npath = \"/b\"\n"), "upstream[1].name"),
        ("upstream = [1]\n".to_owned(), "upstream[0]"),
        ("[upstream]\nurl = \"http://a/\"\n".to_owned(), "upstream"),
    ] {
        let keys: Vec<_> = bad(&text).into_iter().map(|(_, key)| key).collect();
        assert_eq!(keys, [key], "{text}{}", message(&text));
    }
    let listen = Overrides { listen: Some("x".to_owned()), ..none() };
    let text = format!("[admin]\nlisten = \"127.0.0.1:8080\"\n{UPSTREAM}");
    assert_eq!(Config::parse(&text, &listen).unwrap_err().0.len(), 1);
}

proptest! {
    #[test]
    fn no_text_panics(text in ".{0,200}") {
        let _ = Config::parse(&text, &none());
    }

    #[test]
    fn no_likely_text_panics(lines in prop::collection::vec(
        "(\\[{0,2}(server|tasks|upstream|upstream\\.rule|jobs)\\]{0,2}|(url|path|tool|when|ttl|mode|headers|listen|max_body) ?=? ?(\"[^\"]{0,9}|[0-9.]{1,5}|\\[\"a\"|\\{ env = \"?)\"?\\]?\\}?)", 0..12)) {
        let _ = Config::parse(&lines.join("\n"), &none());
    }

    #[test]
    fn a_duration_or_size_never_panics(text in "[0-9]{0,25}(\\.[0-9])?(ms|s|m|h|d|B|MiB|TiB| |µ)?") {
        let _ = Config::parse(&format!("[tasks]\nttl = \"{text}\"\nmax_result = \"{text}\"{UPSTREAM}"), &none());
    }
}
