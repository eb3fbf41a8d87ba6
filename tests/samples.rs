//! Every configuration that is shown to a reader is one that taskgate takes.

use std::path::Path;

use taskgate::config::{Config, Overrides};

const UPSTREAM: &str = "\n[[upstream]]\nurl = \"http://127.0.0.1:8000/mcp\"\n";

fn file(name: &str) -> Option<String> {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).ok()
}

/// A sample may name environment variables, which a test does not have: text stands in for them.
fn parse(text: &str) -> Config {
    let mut parts = text.split("{ env = ");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (_, rest) = part.split_once('}').expect("the braces are closed");
        text = format!("{text}\"0123456789abcdef\"{rest}");
    }
    Config::parse(&text, &Overrides::default()).unwrap_or_else(|problems| panic!("{text}\n{problems}"))
}

/// The sample with its comments before keys taken away, so that every key is written.
fn uncommented(sample: &str) -> String {
    let line = |line: &str| {
        let bare = line.trim_start().strip_prefix("# ").unwrap_or(line);
        let key = bare.split_once(" = ").map(|(key, _)| key);
        let is_key = key.is_some_and(|key| key.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'));
        if is_key { bare.to_owned() } else { line.to_owned() }
    };
    sample.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_sample_is_taken_without_a_warning() {
    let sample = parse(&file("config/taskgate.toml").expect("the sample is part of the repository"));
    assert_eq!(sample.warnings, [""; 0]);
    assert_eq!(sample.upstreams.len(), 1);
    assert_eq!(sample.upstreams[0].rules.iter().count(), 2);
}

#[test]
fn the_sample_shows_the_defaults() {
    let sample = file("config/taskgate.toml").expect("the sample is part of the repository");
    let all = uncommented(&sample);
    assert!(all.contains("\nmax_running_per_owner = 64") && all.contains("\nheaders = "), "{all}");
    let (written, default) = (parse(&all), parse(&sample));
    assert_eq!(format!("{:?}", written.server), format!("{:?}", default.server));
    assert_eq!(format!("{:?}", written.session), format!("{:?}", default.session));
    assert_eq!(format!("{:?}", written.log), format!("{:?}", default.log));
    assert_eq!(format!("{:?}", written.store), format!("{:?}", default.store));
    assert_eq!(format!("{:?}", written.worker), format!("{:?}", default.worker));
    assert_eq!(format!("{:?}", written.gateway), format!("{:?}", default.gateway));
    assert_eq!(written.drain_timeout, default.drain_timeout);
    assert_eq!(written.admin.map(|admin| admin.listen), default.admin.map(|admin| admin.listen));
    let (written, default) = (&written.upstreams[0], &default.upstreams[0]);
    assert_eq!(written.rules.defaults(), default.rules.defaults());
    assert_eq!(written.options.headers.len(), 1);
    let without_headers = |upstream: &taskgate::config::Upstream| {
        let mut options = upstream.options.clone();
        options.headers.clear();
        format!("{options:?}")
    };
    assert_eq!(without_headers(written), without_headers(default));
}

#[test]
fn every_toml_block_of_the_readme_is_taken() {
    let Some(readme) = file("README.md") else { return };
    for block in readme.split("```toml\n").skip(1) {
        let block = block.split("```").next().expect("split gives one part at least");
        if block.contains("[[upstream]]") {
            parse(block);
        } else if block.contains("[[upstream.rule]]") {
            parse(&format!("{UPSTREAM}{block}"));
        } else {
            parse(&format!("{block}{UPSTREAM}"));
        }
    }
}
