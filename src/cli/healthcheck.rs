//! `taskgate healthcheck`: asks the admin listener whether the process is alive, for a container's health check.
//!
//! An image without a shell has no curl. The question is liveness (`/healthz`), not readiness: a process that
//! drains is not ready, and still must not be restarted.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::ExitCode;
use std::time::Duration;

use super::demo::client::explain;

/// What the configuration calls `admin.listen`, as a variable.
const VARIABLE: &str = "TASKGATE_ADMIN_LISTEN";
const DEFAULT: &str = "127.0.0.1:9090";
const PATIENCE: Duration = Duration::from_secs(2);

/// Ask a running taskgate whether it is alive (for a container's health check)
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// What to ask [default: /healthz of TASKGATE_ADMIN_LISTEN, else http://127.0.0.1:9090/healthz]
    #[arg(long, value_name = "URL")]
    url: Option<String>,
}

/// Asks, prints one line, and returns status 0 if the answer was a success within two seconds, else 1.
#[must_use]
pub(super) fn run(args: Args) -> ExitCode {
    let admin = std::env::var(VARIABLE).ok();
    let verdict = args.url.map_or_else(|| url(admin.as_deref()), Ok).and_then(|url| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.map_err(|error| format!("no runtime: {error}"))?.block_on(ask(&url))
    });
    let (line, code) = match verdict {
        Ok(line) => (format!("healthy: {line}"), ExitCode::SUCCESS),
        Err(line) => (format!("unhealthy: {line}"), ExitCode::FAILURE),
    };
    // Whether anybody reads the line does not change the verdict.
    let _ = writeln!(std::io::stdout(), "{line}");
    code
}

/// The URL that an admin listener's address stands for: a wildcard is asked by loopback.
fn url(admin: Option<&str>) -> Result<String, String> {
    let listen = admin.unwrap_or(DEFAULT).trim();
    if listen.is_empty() {
        return Err(format!("{VARIABLE} is empty, so the admin listener is off: nobody to ask"));
    }
    let addr = match listen.parse::<SocketAddr>() {
        Ok(addr) if addr.port() == 0 => {
            return Err(format!("{VARIABLE} is {listen}: with port 0 the port is not known, use --url"));
        }
        Ok(addr) => SocketAddr::new(loopback(addr.ip()), addr.port()).to_string(),
        Err(_) => listen.to_owned(),
    };
    Ok(format!("http://{addr}/healthz"))
}

fn loopback(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    }
}

async fn ask(url: &str) -> Result<String, String> {
    let client = reqwest::Client::builder()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .timeout(PATIENCE)
        .build()
        .map_err(|error| format!("no client: {}", explain(&error)))?;
    let response = client
        .get(url)
        .send()
        .await
        .map_err(|error| explain(&error.without_url()))
        .map_err(|error| format!("{url}: {error}"))?;
    let line = format!("{url} answered {}", response.status());
    if response.status().is_success() { Ok(line) } else { Err(line) }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    #[test]
    fn derives_the_url() {
        for (admin, want) in [
            (None, "http://127.0.0.1:9090/healthz"),
            (Some("0.0.0.0:9000"), "http://127.0.0.1:9000/healthz"),
            (Some("[::]:9000"), "http://[::1]:9000/healthz"),
            (Some("10.0.0.7:80"), "http://10.0.0.7:80/healthz"),
            (Some(" localhost:9090 "), "http://localhost:9090/healthz"),
        ] {
            assert_eq!(url(admin).unwrap(), want);
        }
        assert!(url(Some("")).unwrap_err().contains("is off"));
        assert!(url(Some("127.0.0.1:0")).unwrap_err().contains("--url"));
    }

    /// Answers one request with `response`, and says what was asked.
    async fn answered(response: &'static str) -> (Result<String, String>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/healthz", listener.local_addr().unwrap());
        let serve = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 1024];
            let read = stream.read(&mut request).await.unwrap();
            stream.write_all(response.as_bytes()).await.unwrap();
            String::from_utf8_lossy(&request[..read]).into_owned()
        };
        tokio::join!(ask(&url), serve)
    }

    #[tokio::test]
    async fn only_a_success_is_healthy() {
        let (verdict, request) = answered("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
        assert!(verdict.unwrap().ends_with("answered 200 OK"));
        assert!(request.starts_with("GET /healthz HTTP/1.1"), "{request}");
        let (verdict, _) = answered("HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n").await;
        assert!(verdict.unwrap_err().contains("503"));
        let moved = "HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n";
        assert!(answered(moved).await.0.unwrap_err().contains("302"));
    }

    #[tokio::test]
    async fn nobody_there_or_no_answer_is_unhealthy() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/healthz", listener.local_addr().unwrap());
        let (silent, ()) = tokio::join!(ask(&url), async {
            let (held, _) = listener.accept().await.unwrap();
            tokio::time::pause();
            tokio::time::sleep(PATIENCE * 2).await;
            drop(held);
        });
        tokio::time::resume();
        assert!(silent.unwrap_err().contains("timed out"));
        drop(listener);
        assert!(ask(&url).await.unwrap_err().starts_with(&url));
    }
}
