//! `flowgate init`: a first `gateway.yaml` for a service, and what to do with it.

use crate::config;
use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
};

/// The file that `init` writes.
const FILE: &str = "gateway.yaml";

/// The ports of the gateway and of its admin listener, unless the service has them.
const PORTS: [u16; 4] = [8080, 9901, 8081, 9902];

/// Why there is no new file.
#[derive(Debug, thiserror::Error)]
pub enum InitError {
    /// The URL is missing or wrong. The text says what to write.
    #[error("{0}")]
    Url(String),
    /// There is a file.
    #[error(
        "`{}` exists already, and `init` never replaces a file: `flowgate check` checks it. For a \
         new one, use an empty folder",
        FILE
    )]
    Exists,
    /// The file cannot be written.
    #[error("cannot write `{}` into the folder {}", FILE, .0.display())]
    Write(PathBuf, #[source] io::Error),
    /// The output cannot be written.
    #[error("cannot write to the standard output")]
    Print(#[source] io::Error),
}

/// Writes `gateway.yaml` for the service at `url` into `folder`, unless there is one, and prints
/// what to do next. `program` is the name by which the user starts flowgate.
///
/// # Errors
/// The URL is missing or wrong, there is a file, or it cannot be written.
pub fn run(
    url: Option<&str>,
    folder: &Path,
    program: &str,
    out: &mut impl Write,
) -> Result<(), InitError> {
    let service = service(url)?;
    let [web, admin] = ports(&service);

    let text = first_file(&service.text, web, admin);
    // What flowgate itself rejects would be a bad beginning.
    config::Text::new(Path::new(FILE), &text)
        .rules()
        .map_err(|problems| InitError::Url(problems.to_string()))?;
    write_new(folder, &text)?;

    let there = shell_word(&folder.display().to_string());
    let program = shell_word(program);
    write!(
        out,
        "\
Wrote gateway.yaml: http://127.0.0.1:{web} leads to {url}, and each client may send 10
requests a second. Next, in this terminal:

  {program} check        what the file means, and what its limit promises
  {program}              run the gateway; Ctrl-C ends it

In a second terminal:

  cd {there}
  curl -i http://127.0.0.1:{web}/
  seq 30 | xargs -P30 -I{{}} curl -s -o /dev/null -w '%{{http_code}}\\n' http://127.0.0.1:{web}/ | sort | uniq -c
  {program} top          requests and rejections, live; q ends it

The first curl shows your service's response with RateLimit fields, or 502 if the service does
not run. The second sends 30 requests at once: the limit rejects 20 of them with 429. Edit
`limit` in gateway.yaml and repeat it. The dashboard is http://127.0.0.1:{admin}/dashboard.
",
        url = service.text,
    )
    .and_then(|()| out.flush())
    .map_err(InitError::Print)
}

/// Returns the first file of a gateway in front of `service`.
fn first_file(service: &str, web: u16, admin: u16) -> String {
    let url = quoted(service);
    format!(
        "\
# A gateway in front of {service}: at most 10 requests a second from each client.
# While it runs, an edit of this file is in force as soon as it is saved.
listeners:
  - {{ name: web, listen: 127.0.0.1:{web} }}    # 0.0.0.0:{web} for clients on other machines

# Health, metrics and the dashboard. Keep it on loopback.
admin:
  listen: 127.0.0.1:{admin}

upstreams:
  - name: app
    servers:
      - url: {url}

routes:
  - name: app
    match: {{ path_prefix: / }}               # every request
    upstream: app
    flow:
      - name: per-client                    # each address, each IPv6 /64
        limit: 10/1s                        # 10 at once, then one every 100 ms
        key: client_ip

# Marks the end of the file: flowgate then rejects one that was cut short.
end: true
"
    )
}

/// Reads the URL of the service. An error has the whole command to write.
fn service(url: Option<&str>) -> Result<config::ServerUrl, InitError> {
    const EXAMPLE: &str =
        "write the address of your service, as in `flowgate init http://127.0.0.1:3000`";
    let text = url.unwrap_or_default().trim();
    if text.is_empty() {
        return Err(InitError::Url(EXAMPLE.to_owned()));
    }
    config::server_url(text).map_err(|problem| {
        let meant = meant(text);
        let help = meant.map_or_else(
            || EXAMPLE.to_owned(),
            |url| format!("write `flowgate init {}`", shell_word(&url)),
        );
        InitError::Url(format!("{problem}: {help}"))
    })
}

/// Returns the URL that `text` probably stands for.
fn meant(text: &str) -> Option<String> {
    let is_mistyped = |text: &&str| !text.contains("//");
    let (scheme, rest) = text
        .split_once("://")
        .or_else(|| Some(("http", text)).filter(|(_, rest)| is_mistyped(rest)))?;
    let scheme = match &*scheme.to_ascii_lowercase() {
        "https" | "wss" | "grpcs" => "https",
        _ => "http",
    };

    // Without path, query, fragment and login.
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let authority = rest[..end].rsplit('@').next().unwrap_or_default();
    let port = authority.strip_prefix(':').unwrap_or(authority);
    let authority = match (port.parse::<u16>(), authority.parse()) {
        (Ok(port), _) => format!("127.0.0.1:{port}"),
        (_, Ok(std::net::IpAddr::V6(ip))) => format!("[{ip}]"),
        _ => authority.to_owned(),
    };
    let url = format!("{scheme}://{authority}");
    config::server_url(&url).is_ok().then_some(url)
}

/// Returns ports for clients and for the admin listener that are not the service's.
fn ports(service: &config::ServerUrl) -> [u16; 2] {
    let free = |first: usize| {
        let pair = [PORTS[first], PORTS[first + 2]];
        if pair[0] == service.port { pair[1] } else { pair[0] }
    };
    [free(0), free(1)]
}

/// Returns `text` as a value of YAML.
fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.~:/[]%".contains(c);
    if text.chars().all(is_plain) && !text.ends_with(':') {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', "''"))
    }
}

/// Returns `text` as one word of a shell.
fn shell_word(text: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_.~:/%+,@=".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

/// Writes the file, which no other file, link or folder may be in place of.
fn write_new(folder: &Path, text: &str) -> Result<(), InitError> {
    let path = folder.join(FILE);
    let failed = |error: io::Error| {
        if error.kind() == io::ErrorKind::AlreadyExists {
            return InitError::Exists;
        }
        InitError::Write(folder.to_owned(), error)
    };
    let mut file = OpenOptions::new().write(true).create_new(true).open(&path).map_err(failed)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(|error| {
        // A part of the file would keep the next attempt from writing it.
        drop(fs::remove_file(&path));
        failed(error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn init(folder: &Path, url: &str) -> Result<String, InitError> {
        let mut out = Vec::new();
        run(Some(url), folder, "flowgate", &mut out)?;
        Ok(String::from_utf8(out).unwrap())
    }

    #[test]
    fn the_file_has_a_route_for_everything_admin_a_limit_and_an_end_and_no_check_finds_anything() {
        for (url, listeners) in [
            ("http://127.0.0.1:3000", [8080, 9901]),
            ("http://localhost:8080/", [8081, 9901]),
            ("http://127.0.0.1:9901", [8080, 9902]),
            ("https://shop.internal", [8080, 9901]),
            ("http://[::1]:3000", [8080, 9901]),
            ("unix:/run/it's an app: #1.sock", [8080, 9901]),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let said = init(folder.path(), url).unwrap();
            let plan = config::read(&folder.path().join(FILE)).expect(url);
            let remarks = plan.remarks_at(crate::flow::Instant::EPOCH);
            assert!(remarks.is_empty(), "{url}: {remarks}");
            let ports = [
                plan.listeners[0].addresses[0].address.ip().unwrap().port(),
                plan.settings.admin.as_ref().unwrap().listen.port(),
            ];
            assert_eq!(ports, listeners, "{url}");
            let described = config::describe(&plan);
            assert!(described.contains("app  /* → app") && described.contains("per-client"));
            assert!(said.contains(&format!("curl -i http://127.0.0.1:{}/\n", ports[0])), "{said}");
            let folder = folder.path().display().to_string();
            assert!(said.contains(&format!("cd {folder}\n")), "{said}");
        }
    }

    #[test]
    fn a_file_or_a_link_that_is_there_stays_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        fs::write(&path, "mine").unwrap();
        let error = init(folder.path(), "http://127.0.0.1:3000").unwrap_err();
        assert!(error.to_string().contains("never replaces a file"), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "mine");

        fs::remove_file(&path).unwrap();
        let target = folder.path().join("elsewhere");
        std::os::unix::fs::symlink(&target, &path).unwrap();
        let error = init(folder.path(), "http://127.0.0.1:3000").unwrap_err();
        assert!(matches!(error, InitError::Exists), "{error}");
        assert!(!target.exists());

        let missing = folder.path().join("none");
        let error = init(&missing, "http://127.0.0.1:3000").unwrap_err();
        assert!(matches!(error, InitError::Write(..)), "{error}");
    }

    #[test]
    fn a_wrong_url_gets_the_command_to_write_and_that_command_works() {
        for (text, command) in [
            ("", "http://127.0.0.1:3000"),
            ("3000", "http://127.0.0.1:3000"),
            (":3000", "http://127.0.0.1:3000"),
            ("localhost:3000", "http://localhost:3000"),
            ("shop.internal", "http://shop.internal"),
            ("::1", "'http://[::1]'"),
            ("http://127.0.0.1:3000/api", "http://127.0.0.1:3000"),
            ("https://a.b/?x=1", "https://a.b"),
            ("http://me:secret@a.b:81/", "http://a.b:81"),
            ("ws://127.0.0.1:3000/socket", "http://127.0.0.1:3000"),
            ("HTTPS//a.b", "http://127.0.0.1:3000"),
            ("http://", "http://127.0.0.1:3000"),
            ("http://a.b:99999", "http://127.0.0.1:3000"),
            ("ftp://a.b", "http://a.b"),
            ("http://a b", "http://127.0.0.1:3000"),
            ("\u{1b}[31m", "http://127.0.0.1:3000"),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let said = init(folder.path(), text).expect_err(text).to_string();
            let expected = format!("`flowgate init {command}`");
            assert!(said.ends_with(&expected), "{text}: {said}");
            assert!(!said.contains(['\u{1b}', '\n']), "{said}");
            assert!(!folder.path().join(FILE).exists(), "{text}");
            init(folder.path(), command.trim_matches('\'')).expect(command);
        }
        let error = run(None, Path::new("."), "flowgate", &mut Vec::new()).unwrap_err();
        assert!(error.to_string().contains("`flowgate init http://127.0.0.1:3000`"), "{error}");
    }

    #[test]
    fn words_with_blanks_are_quoted_for_the_shell() {
        assert_eq!(shell_word("/home/me/gateway"), "/home/me/gateway");
        assert_eq!(shell_word("/home/my name/it's"), r"'/home/my name/it'\''s'");
    }
}
