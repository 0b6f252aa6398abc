//! `flowgate preview` and `flowgate apply`: they ask a running gateway through its admin listener.

use super::{Format, PreviewOptions};
use crate::{
    admin_client::{AdminClient, AdminOptions, ClientError, run},
    clock::Clock,
    config,
    preview::{Cost, PreviewReport, State},
    shutdown::Signals,
    terminal_text::{terminal_json, terminal_lines},
};
use bytes::Bytes;
use bytesize::ByteSize;
use core::time::Duration;
use http::Method;
use std::{
    fs,
    io::{self, BufRead, IsTerminal, Read, Write},
    path::Path,
};

/// How often the report is read.
const LOOK: Duration = Duration::from_secs(1);

/// How often a line is written where that is no terminal, in looks.
const QUIET_LOOKS: u32 = 10;

/// How much longer than its time a preview may go on, until it is applied.
const MARGIN: Duration = Duration::from_mins(1);

/// Why a command ended without success.
#[derive(Debug, thiserror::Error)]
pub enum PreviewError {
    /// The gateway is not reached, or does not do it, and says why: the new file has errors, for
    /// example.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The new file cannot be read.
    #[error("cannot read {path}")]
    Unreadable {
        /// The file.
        path: String,
        /// Why not.
        source: io::Error,
    },
    /// The preview was not begun.
    #[error("not begun")]
    Declined,
    /// The output cannot be written, or no signal received.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Previews a new file until its time is over, a signal comes, or the gateway ends it. Writes the
/// report to `out`.
///
/// # Errors
///
/// See [`PreviewError`].
pub fn preview(
    new: &Path,
    config: &Path,
    options: &PreviewOptions,
    out: &mut impl Write,
) -> Result<(), PreviewError> {
    let text = Bytes::from(read(new)?);
    let client = AdminClient::find(config, &options.admin)?;

    run(async {
        let cost: Cost = client.ask(Method::POST, "/preview?check", text.clone()).await?;
        say_cost(new, &cost);
        if !options.yes && !confirm()? {
            return Err(PreviewError::Declined);
        }
        let query = options.time.map_or_else(String::new, |time| {
            let most = if options.apply { time + MARGIN } else { time };
            format!("?for={}s", most.as_secs().max(1))
        });
        let _cost: Cost = client.ask(Method::POST, &format!("/preview{query}"), text).await?;
        let report = follow(&client, options).await?;
        match options.output {
            Format::Text => write!(out, "{}", terminal_lines(&report.to_string()))?,
            Format::Json => {
                let json = serde_json::to_string_pretty(&report).map_err(io::Error::from)?;
                writeln!(out, "{}", terminal_json(&json))?;
            }
        }
        out.flush()?;
        Ok(())
    })
}

/// Puts the new file of the running preview in force, and writes what that did to `out`.
///
/// # Errors
///
/// See [`PreviewError`].
pub fn apply(
    config: &Path,
    options: &AdminOptions,
    out: &mut impl Write,
) -> Result<(), PreviewError> {
    let client = AdminClient::find(config, options)?;
    run(async {
        let summary = put_in_force(&client).await?;
        writeln!(out, "{summary}")?;
        Ok(out.flush()?)
    })
}

/// Reads the report until the preview is over.
async fn follow(
    client: &AdminClient,
    options: &PreviewOptions,
) -> Result<PreviewReport, PreviewError> {
    let clock = Clock::start();
    let mut signals = Signals::listen()?;
    // Unless the file is put in force then, the gateway ends the preview by itself.
    let margin = if options.apply { Duration::ZERO } else { MARGIN };
    let end = options.time.map(|time| clock.now() + time + margin);
    let is_terminal = io::stderr().is_terminal();
    let mut looks = 0;

    loop {
        let report: PreviewReport = client.ask(Method::GET, "/preview", "").await?;
        looks += 1;
        if is_terminal {
            eprint!("\r\x1b[2K{}", report.line());
        } else if looks % QUIET_LOOKS == 0 {
            eprintln!("{}", report.line());
        }
        let is_signalled = tokio::select! {
            () = signals.end() => true,
            () = clock.timer(clock.now() + LOOK) => false,
        };
        let is_over = end.is_some_and(|end| end <= clock.now());
        if !is_signalled && !is_over && report.state == State::Running {
            continue;
        }
        if is_terminal {
            eprintln!();
        }
        if report.state == State::Ended {
            return Ok(report);
        }
        if is_over && !is_signalled && options.apply {
            eprintln!("{}", put_in_force(client).await?);
            return Ok(client.ask(Method::GET, "/preview", "").await?);
        }
        return Ok(client.ask(Method::DELETE, "/preview", "").await?);
    }
}

fn say_cost(new: &Path, cost: &Cost) {
    if let Some(warnings) = &cost.warnings {
        eprintln!("{}", warnings.trim_end());
    }
    if cost.is_in_force {
        eprintln!("{} is the file in force: the preview will show no change", new.display());
    }
    eprintln!(
        "The preview takes up to {} of memory in the gateway. It rejects and delays no request.",
        ByteSize(cost.memory_bytes)
    );
}

/// Asks whether to begin, if a terminal is there.
fn confirm() -> io::Result<bool> {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Ok(true);
    }
    eprint!("Begin? [y/N] ");
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

fn read(path: &Path) -> Result<Vec<u8>, PreviewError> {
    let read = if path == Path::new(config::STDIN) {
        let mut text = Vec::new();
        io::stdin().lock().read_to_end(&mut text).map(|_| text)
    } else {
        fs::read(path)
    };
    let path = path.display().to_string();
    read.map_err(|source| PreviewError::Unreadable { path, source })
}

async fn put_in_force(client: &AdminClient) -> Result<String, PreviewError> {
    let applied: serde_json::Value = client.ask(Method::POST, "/preview/apply", "").await?;
    Ok(applied["summary"].as_str().unwrap_or_default().to_owned())
}
